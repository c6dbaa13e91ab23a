"""Contracts of the kind that runs a builder's script."""
