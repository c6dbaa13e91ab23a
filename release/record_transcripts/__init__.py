"""Records transcripts of the real agent programs, whose model is played on this machine."""
