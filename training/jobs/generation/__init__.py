"""Jobs that write text."""
