"""Whom does privacy cost most? By budget, by label and by client: docs/results/whom.md."""
