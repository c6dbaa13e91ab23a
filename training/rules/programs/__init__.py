"""Rules of written programs: where a program is in an answer."""
