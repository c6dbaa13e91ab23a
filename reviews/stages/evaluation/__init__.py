"""Judges of the kinds that measure a model."""
