"""Control Tower: AI-control evaluations, from one command on a laptop to a fleet."""

__version__ = "0.1.0"
