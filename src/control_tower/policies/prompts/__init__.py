"""The shipped policies' prompts, as text files."""
