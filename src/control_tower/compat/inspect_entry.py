"""What Inspect finds through its entry point: our sandboxes, models and tasks register on import."""
