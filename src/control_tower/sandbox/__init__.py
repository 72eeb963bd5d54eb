"""Where agents act: bubblewrap, Docker and plain-process providers."""
