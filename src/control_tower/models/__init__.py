"""Roles, aliases, rates and cost of the models of a run."""
