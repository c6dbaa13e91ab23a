"""Contracts of the kind that packages a checkpoint."""
