"""Contracts of notices to people."""
