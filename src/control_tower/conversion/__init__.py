"""Logs of older formats made current: one pure step for each major version."""
