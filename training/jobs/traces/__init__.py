"""Asks a local model what it would have done in the states of recorded agent sessions."""
