"""Task scorers and the workspace diff."""
