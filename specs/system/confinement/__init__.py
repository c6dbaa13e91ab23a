"""Runs code that is not Peergate's own: bubblewrap, the filter of system calls, and the process of a verifier."""
