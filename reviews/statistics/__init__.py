"""Statistics of comparisons, each with its source."""
