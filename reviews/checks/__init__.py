"""Checks that belong to no family: registration, jobs, provenance, leakage, claims, pilots."""
