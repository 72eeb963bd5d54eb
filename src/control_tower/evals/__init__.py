"""RunConfig, selection, the Inspect task, the local run and its table."""
