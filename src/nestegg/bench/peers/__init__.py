"""Scripts that do the same work with other simulators, each in a virtual environment of its own."""
