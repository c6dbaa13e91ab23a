"""Benchmarks of other libraries, each in a separate Python environment, as jobs."""
