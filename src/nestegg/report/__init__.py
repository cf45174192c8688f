"""What a run looks like: charts, and one page that holds them."""
