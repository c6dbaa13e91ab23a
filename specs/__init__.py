"""Contracts: what was promised. Pydantic models, digests and the spec loader; no behaviour.

May import: pydantic, ruamel-yaml, rfc8785. Importable in under 0.2 s, never imports torch.
"""
