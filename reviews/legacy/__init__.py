"""Reads older free-text reviews as records. Nothing here writes to a trail, and no gate reads a record."""
