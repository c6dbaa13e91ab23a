"""The judge of written programs."""
