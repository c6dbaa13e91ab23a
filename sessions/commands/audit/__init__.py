"""The commands ``peergate audit ...``."""
