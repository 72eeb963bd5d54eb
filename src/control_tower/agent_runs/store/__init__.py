"""Documents with columns to find them by, in SQLite or MongoDB."""
