"""Contracts: pydantic models, digests and the spec loader, importable in under 0.2 s and without torch."""
