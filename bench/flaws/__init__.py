"""Flaws planted in real sessions on a tiny model, one a session, each next to its healthy twin."""
