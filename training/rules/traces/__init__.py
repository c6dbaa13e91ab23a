"""Reads recorded conversations of coding agents into turns and states to learn from. No torch, no network."""
