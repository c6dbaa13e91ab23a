"""Contracts of what people are told."""
