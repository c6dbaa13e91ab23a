"""What runs: one module a stage, each its own process. Torch and TRL only inside functions that need them.

May import: specs. No gate logic, no trail; what a stage writes is evidence, never a verdict.
"""
