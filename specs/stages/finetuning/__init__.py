"""Contracts of the kinds that train."""
