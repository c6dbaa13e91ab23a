"""Attacks on Peergate, by family and with a seed: what was tried, what was found, what was missed."""
