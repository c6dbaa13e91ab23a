"""A task for Peergate: answers in JSON."""
