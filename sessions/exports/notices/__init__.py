"""Tells people what happened in a session: never a reason for it to stop."""
