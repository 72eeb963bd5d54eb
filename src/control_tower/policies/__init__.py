"""Shipped policies of the red side."""
