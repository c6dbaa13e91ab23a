"""Judges of the kinds that criticise and make preference pairs."""
