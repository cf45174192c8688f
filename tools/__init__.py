"""What maintainers run: the release."""
