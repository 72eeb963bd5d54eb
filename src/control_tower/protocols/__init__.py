"""Shipped protocols of the blue side."""
