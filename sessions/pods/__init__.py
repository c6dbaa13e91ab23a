"""A whole session on a machine that is reached over SSH: checked, started there, watched and ended from here."""
