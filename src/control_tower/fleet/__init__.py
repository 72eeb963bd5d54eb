"""A fleet: many jobs on workers that may vanish, and exactly one accepted result for each job."""
