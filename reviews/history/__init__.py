"""What happened in a session, as one typed model: every page, gate, audit and export reads the trail through it."""
