"""Data files as people have them, and the rows they become when a session is registered."""
