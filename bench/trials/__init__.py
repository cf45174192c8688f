"""Trials of what servers and clients might do better, on validation data, each against nothing: docs/trials.md."""
