"""Which files of the content store each kind of entry requires: one table for the audit and for ``verify/``.

``python -m specs.trail.stored_evidence verify/evidence.json`` writes it for the Go program, with the kinds of entries
that may follow the end of a session.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from specs.trail.bodies import AFTER_THE_END

EVIDENCE: dict[str, tuple[str, ...]] = {
    "open": ("spec", "source", "constitution", "measured_by", "data.*"),
    "turn": ("answer", "request", "response"),
    "call": ("arguments",),
    "result": ("text", "image"),
    "note": ("text",),
    "launch": ("order",),
    "exit": ("exit", "manifest", "log", "outputs.*.digest?stored", "outputs.*.digest?copied/"),
    "challenge": ("order",),
    "witness": ("exit", "manifest", "rows", "log"),
    "metrics": ("metrics",),
    "checks": ("checks",),
    "packet": ("packet",),
    "look": ("packet", "arguments", "answer"),
    "verdict": ("packet", "verdict", "request", "response", "earlier.*.request", "earlier.*.response"),
    "canary": ("of", "packet", "verdict", "request", "response", "earlier.*.request", "earlier.*.response"),
    "decision": ("decision",),
    "amendment": ("spec", "source", "packet", "verdict", "code"),
    "replication": ("result",),
    "report": ("files.*",),
    "question": ("request", "read", "instructions", "readable/"),
    "answer": ("answer", "request", "response", "earlier.*.request", "earlier.*.response"),
}
"""Paths in a body that lead to the digest of a file in the store, by kind of entry.

``*`` is every member of an object or array; ``?name`` requires that ``name`` next to the digest is true; after a path
that ends with ``/`` the file is a JSON object whose values are digests of further files.
"""
IN_THE_RUN = "report"
"""The kind whose files a run folder has next to its store; an export has them in it."""
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class StoredFile(NamedTuple):
    """A file that an entry requires in the store."""

    name: str
    """Where the entry names it: ``data.train``."""
    digest: str
    is_list: bool = False
    """Whether it names further files."""


def stored_evidence(kind: str, body: Any) -> Iterator[StoredFile]:
    """Yield the files that an entry requires, whose body may be anything."""
    for path in EVIDENCE.get(kind, ()):
        path, is_list = path.removesuffix("/"), path.endswith("/")
        path, _, condition = path.partition("?")
        for name, digest in _values(body, path.split("."), condition, ()):
            if isinstance(digest, str) and DIGEST.fullmatch(digest):
                yield StoredFile(name, digest, is_list)


def _values(value: Any, path: list[str], condition: str, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if not path:
        yield ".".join(names), value
    elif path[0] == "*":
        members = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
        for name, member in members:
            yield from _values(member, path[1:], condition, (*names, str(name)))
    elif isinstance(value, Mapping) and path[0] in value and (path[1:] or _holds(value, condition)):
        yield from _values(value[path[0]], path[1:], condition, (*names, path[0]))


def _holds(members: Mapping[str, Any], condition: str) -> bool:
    return not condition or members.get(condition) is True


def table_text() -> str:
    """Return the table as ``verify/`` reads it."""
    return json.dumps({"after_the_end": sorted(AFTER_THE_END), "evidence": EVIDENCE}, indent=2) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(table_text(), encoding="utf-8")
