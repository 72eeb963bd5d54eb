"""The endpoints, a module a subject."""
