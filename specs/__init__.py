"""Contracts: pydantic models, digests and the spec loader, importable in under 0.2 s and without torch."""

from specs.system.reporting import turn_off_reporting

turn_off_reporting()
