"""Judges of the kinds that train."""
