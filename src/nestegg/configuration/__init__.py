"""Configuration files: their sections, who takes part by them, and what identifies a run."""
