"""A launcher for Peergate that runs jobs in another folder of this machine."""
