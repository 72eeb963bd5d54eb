"""Finding settings and the environments they hold."""
