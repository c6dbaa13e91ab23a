"""Reviews on request: one question, a full review of files, or claims against evidence."""
