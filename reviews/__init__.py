"""Who decides and remembers: measurer, checks, packet, reviewers, decide, grants, trail, audit.

May import: training.rules (what jobs and judges compute alike, free of torch), specs. Never agents or sessions:
the judge does not know the builder.
"""
