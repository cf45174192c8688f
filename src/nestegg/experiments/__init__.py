"""The paper's evaluation: every table and figure as a small file, its cells, and what they show."""
