"""From evidence to a decision: measurer, checks, packet, verdict, grant."""
