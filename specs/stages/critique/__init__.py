"""Contracts of the kinds that judge text and make preference pairs."""
