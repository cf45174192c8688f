"""Benchmarks: ratios within one run, never assertions."""
