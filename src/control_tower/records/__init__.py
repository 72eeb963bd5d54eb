"""What crosses walls: the encodings of Scores, task data and headers."""
