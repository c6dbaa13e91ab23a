"""The judge of a builder's scripts."""
