"""The tools of a sample: the agent's shell and editor, and the engine's own."""
