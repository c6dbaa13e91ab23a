"""The judge of packages."""
