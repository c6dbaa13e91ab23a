"""Benchmarks of other libraries, each in a Python environment of its own, as jobs."""
