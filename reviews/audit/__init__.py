"""Verify, recompute and export a saved trail."""
