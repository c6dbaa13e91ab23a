"""Makes untrusted text safe to print; it stands in ``specs/text.py``, where builders can reach it too."""

from __future__ import annotations

from specs.text import plain

__all__ = ["plain"]
