"""The prompts of protocols."""
