"""Contracts of the kinds that measure a model."""
