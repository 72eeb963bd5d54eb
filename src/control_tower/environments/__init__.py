"""What a setting's author writes: environment, tasks, spaces, scorer helpers."""
