"""Shipped monitors and their prompts."""
