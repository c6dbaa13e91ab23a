"""Judges of the kinds that sample text."""
