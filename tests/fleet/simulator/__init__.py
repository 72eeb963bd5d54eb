"""A fleet in virtual time: the real controller and workers, on machines and a network that fail by a seed."""
