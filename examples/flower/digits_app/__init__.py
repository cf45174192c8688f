"""Digits with individual privacy budgets: nestegg on Flower."""
