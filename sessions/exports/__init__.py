"""Formats of other tools in which `peergate export` writes what a session found."""
