"""Runs that are kept: what each is, how it comes in, how it is found again."""
