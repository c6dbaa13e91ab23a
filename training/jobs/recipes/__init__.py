"""What runs a builder's script, and what takes its checkpoint over."""
