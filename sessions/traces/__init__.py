"""Asks teachers what they would have done in the states of a trace."""
