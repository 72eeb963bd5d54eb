"""Names that Inspect and older settings import."""
