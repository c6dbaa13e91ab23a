"""Rules that need more than one field of a spec."""
