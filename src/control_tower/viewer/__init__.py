"""The web application over kept runs."""
