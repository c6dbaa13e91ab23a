"""Contracts of agent traces: the turns of recorded conversations, and an account of what became of every record."""
