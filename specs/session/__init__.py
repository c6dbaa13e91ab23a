"""The spec of a session: its form, its loader, and the rules it must meet."""
