"""Flaws planted in real sessions on a tiny model, one a session, each beside its healthy twin."""
