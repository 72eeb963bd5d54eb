"""The built-in setting: a whole evaluation without keys, Docker or network."""
