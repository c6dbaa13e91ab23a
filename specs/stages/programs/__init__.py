"""Contracts of the kind that has a model write programs."""
