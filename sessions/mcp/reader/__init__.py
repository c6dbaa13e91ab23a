"""Serves runs to clients that only read."""
