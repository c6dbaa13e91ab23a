"""What runs: one module a stage in ``jobs``, each its own process; what judges compute alike is in ``rules``.

Torch and TRL are imported only inside functions that need them.

May import: specs. No gate logic, no trail; what a stage writes is evidence, never a verdict.
"""
