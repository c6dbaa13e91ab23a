"""Contracts of the kinds that sample text."""
