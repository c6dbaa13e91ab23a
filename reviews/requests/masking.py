"""Takes secrets out of what is sent to a reviewer and kept in a trail.

Covered: the exact values of environment variables that are named like secrets, the forms in which well-known services
issue keys, and private keys in PEM form. Not covered: passwords that look like words, keys of other services, and
secrets written in parts or encoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_NAMED_LIKE_A_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
SHORTEST_VALUE = 12
"""Shorter values are words and settings (``TOKENIZERS_PARALLELISM=false``); masking them would garble the text."""

_ISSUED = re.compile(
    r"(?<![A-Za-z0-9_-])(?:"
    r"sk-ant-[A-Za-z0-9_-]{16,}"  # Anthropic
    r"|sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}|sk-[A-Za-z0-9]{32,}"  # OpenAI
    r"|hf_[A-Za-z0-9]{30,}"  # Hugging Face
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}"  # AWS
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}"  # GitHub
    r"|AIza[0-9A-Za-z_-]{35}"  # Google
    r"|xox[abprs]-[A-Za-z0-9-]{20,}"  # Slack
    r")(?![A-Za-z0-9])"
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----.*?(?:-----END (?:[A-Z]+ )*PRIVATE KEY-----|\Z)", re.DOTALL
)


class Masked(NamedTuple):
    """A text without its secrets, and how many were taken out."""

    text: str
    secrets: int


class Masker:
    """Masks the secrets of one environment, and everything that has the form of an issued key."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        found = {value.strip(): name for name, value in sorted(environ.items()) if _is_secret(name, value.strip())}
        # Longest first: a value may begin with another one.
        self._values = sorted(found.items(), key=lambda one: -len(one[0]))

    def mask(self, text: str) -> Masked:
        """Replace every secret by a mark; the number of lines stays as it was."""
        count = 0
        for value, name in self._values:
            count += text.count(value)
            text = text.replace(value, f"[masked: {name}]")
        text, issued = _ISSUED.subn("[masked: a key]", text)
        text, private = _PRIVATE_KEY.subn(_blank_lines, text)
        return Masked(text, count + issued + private)


def _is_secret(name: str, value: str) -> bool:
    if not _NAMED_LIKE_A_SECRET.search(name) or len(value) < SHORTEST_VALUE:
        return False
    # SSH_KEY_PATH and the like name a place; a phrase is no key, and words of letters alone are settings.
    return not value.startswith(("/", "~", "./", "http:", "https:")) and not re.search(r"\s", value)


def _blank_lines(found: re.Match[str]) -> str:
    return "[masked: a private key]" + "\n" * found.group(0).count("\n")
