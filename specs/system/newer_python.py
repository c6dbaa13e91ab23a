"""Syntax of Python versions after the one that runs: a file with it is not wrong, it cannot be read here."""

from __future__ import annotations

import re
import sys

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
_NEWER: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("3.12", re.compile(r"\s*type\s+\w+\s*(\[[^\]]*\])?\s*=")),
    ("3.12", re.compile(r"\s*(async\s+def|def|class)\s+\w+\s*\[")),
    ("3.14", re.compile(r"\s*except\*?\s+[\w.]+\s*,\s*[\w.]+(\s*,\s*[\w.]+)*\s*:")),
    ("3.14", re.compile(r"[^#]*\b[tT][rR]?['\"]|[^#]*\b[rR][tT]['\"]")),
    ("3.12", re.compile(r"[^#]*\b[fF][rR]?['\"].*\{.*['\"\\]|[^#]*\b[rR][fF]['\"].*\{.*['\"\\]")),
)
"""How lines look that an earlier Python refuses: aliases of types, type parameters, `except` without parentheses,
template strings, and quotes or backslashes inside the braces of a formatted string."""


def newer_version(error: SyntaxError, text: str) -> str:
    """Return the Python version that reads what this one refuses; empty where the text is wrong in every version."""
    lines = text.splitlines()
    line = lines[error.lineno - 1] if error.lineno and error.lineno <= len(lines) else ""
    version = next((version for version, form in _NEWER if form.match(line)), "")
    return version if version and tuple(map(int, version.split("."))) > sys.version_info[:2] else ""


def syntax_fault(error: SyntaxError, text: str) -> str:
    """Return in words why a text is not a Python that can run here."""
    version = newer_version(error, text)
    if version:
        return f"needs Python {version} or newer, and Python {HERE} runs it: {error.msg}"
    return f"not valid Python: {error.msg}"
