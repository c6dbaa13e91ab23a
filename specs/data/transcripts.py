"""Packs transcripts of agent sessions into rows: each file is one, as it is but for secrets."""

from __future__ import annotations

from pathlib import Path

from specs.stages.base.artifacts import Item
from specs.system.errors import Problem
from specs.system.masking import current
from specs.system.regular_files import read_regular

KIND = "transcript"
_HINT = "name a session file of Claude Code, or a folder of ~/.claude/projects"


def pack_transcripts(path: Path) -> list[Item] | list[Problem]:
    """Return a row for each ``*.jsonl`` below a folder, or for one file; raises OSError."""
    files = (
        sorted(current_path for current_path in path.rglob("*.jsonl") if current_path.is_file())
        if path.is_dir()
        else [path]
    )
    mask = current().json
    items: list[Item] = []
    for current_path in files:
        name = (
            current_path.relative_to(path if path.is_dir() else path.parent)
            .as_posix()
            .encode("utf-8", "replace")
            .decode()
        )
        lines = read_regular(current_path).decode("utf-8", "replace").split("\n")
        # A line at a time: what is masked inside a string of JSON must leave it one.
        text = "\n".join(map(mask, lines))
        if text.strip():
            group = name.partition("/")[0].removesuffix(".jsonl")
            items.append(Item(id=name, group=group, kind=KIND, prompt=text, constraint={}))
    return items or [Problem(str(path), 1, 1, "", "holds no transcript", _HINT)]
