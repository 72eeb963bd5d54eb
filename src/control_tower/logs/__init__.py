"""The .eval archive and what a sample's actions are."""
