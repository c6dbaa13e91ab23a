"""The optional package with which an export is read by llama.cpp."""

from __future__ import annotations

from importlib.util import find_spec

PACKAGE = "cyllama"


def is_installed() -> bool:
    """Return whether the packages that write and read GGUF files are installed here."""
    return find_spec("gguf") is not None and find_spec(PACKAGE) is not None
