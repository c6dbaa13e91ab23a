"""Who decides and remembers: measurer, checks, packet, reviewers, decide, grants, trail, audit.

May import: training (torch-free parts: the verifiers), specs. Never agents or sessions:
the judge does not know the builder.
"""
