"""What `make docs` adds to the pages that are written by hand."""
