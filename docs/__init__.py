"""Pages of documentation, and the programs that make parts of them."""
