"""Digests of data files and companions, written into a spec: every other byte of the file stays as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from specs.data.tables import digest_of
from specs.system.errors import PeergateError, UserError
from specs.system.regular_files import read_regular
from specs.system.yaml.problems import LintProblem, Loc, format_loc
from specs.system.yaml.yaml_positions import Document, YamlMapping, decode, read_document, read_yaml


class Pin(NamedTuple):
    """One data file, and the digest that the spec has for it now."""

    where: str
    path: str
    before: str | None
    digest: str


def pin(path: Path) -> list[Pin]:
    """Write the digest of every data file and companion into a spec, those of its profiles too; returns them all.

    Raises:
        SpecError: the spec is not YAML, or a file that it names cannot be read; nothing was written.
        UserError: the spec cannot be read or written; it is as it was.
    """
    try:
        path = path.resolve()
        raw = read_regular(path)
    except OSError as error:
        raise UserError(f"'{path}' cannot be read: {error}") from error
    document = read_document(path, raw)
    pins: dict[Loc, Pin] = {}
    problems: list[LintProblem] = []
    for loc, entry in _files(document):
        try:
            digest = digest_of(path.parent / entry["path"])
        except (OSError, ValueError) as error:
            statement = "does not exist" if isinstance(error, FileNotFoundError) else "cannot be read"
            problems.append(LintProblem((*loc, "path"), f"file '{entry['path']}' {statement}"))
            continue
        pins[loc] = Pin(format_loc(loc), entry["path"], entry.get("digest"), digest)
    if problems:
        raise document.error(path, problems)
    text = _insert_digests(decode(raw), pins)
    if text.encode() != raw:
        _require_same(document, text, pins)
        _replace(path, text.encode())
    return list(pins.values())


def _files(document: Document) -> Iterator[tuple[Loc, YamlMapping]]:
    """Yield the mappings of a spec, and of each of its profiles, that name a data file or a companion."""
    top: YamlMapping = document.data
    profiles = top.get("profiles")
    every: list[tuple[Loc, Any]] = [((), top)]
    if isinstance(profiles, YamlMapping):
        every += [(("profiles", name), profile) for name, profile in profiles.items()]
    for base, value in every:
        if not isinstance(value, YamlMapping):
            continue
        data, companions = value.get("data"), value.get("companions")
        named: list[tuple[Loc, Any]] = [((*base, "heldout"), value.get("heldout"))]
        named += [((*base, "data", name), file) for name, file in data.items()] if isinstance(data, YamlMapping) else []
        if isinstance(companions, YamlMapping):
            named += [((*base, "companions", name), file) for name, file in companions.items()]
        for loc, file in named:
            if isinstance(file, YamlMapping) and isinstance(file.get("path"), str):
                yield loc, file


def _insert_digests(text: str, pins: dict[Loc, Pin]) -> str:
    """Return the text of a spec with the digests in it."""
    # Imported here: jobs import the contracts, and read no YAML.
    from ruamel.yaml import YAML

    root: Any = YAML(typ="safe", pure=True).compose(text)
    changes = sorted((_change(text, _node(root, loc), pin.digest) for loc, pin in pins.items()), reverse=True)
    for start, end, new in changes:
        text = text[:start] + new + text[end:]
    return text


def _node(node: Any, loc: Loc) -> Any:
    for name in loc:
        node = next(value for key, value in node.value if key.value == name)
    return node


def _change(text: str, node: Any, digest: str) -> tuple[int, int, str]:
    """Return where a mapping gets its digest: from and up to which character, and what is written there."""
    there = {key.value: value for key, value in node.value}
    if (old := there.get("digest")) is not None:
        if old.value == digest:
            return old.start_mark.index, old.start_mark.index, ""
        space = "" if text[old.start_mark.index - 1].isspace() else " "
        return old.start_mark.index, old.end_mark.index, space + digest
    first, path = node.value[0][0], there["path"]
    if node.flow_style:
        return path.end_mark.index, path.end_mark.index, f", digest: {digest}"
    # Before the first key: what follows a value, a comment or a text of several lines, stays with it.
    break_ = "\r\n" if "\r\n" in text else "\n"
    start = first.start_mark.index
    return start, start, f"digest: {digest}{break_}{' ' * first.start_mark.column}"


def _require_same(document: Document, text: str, pins: dict[Loc, Pin]) -> None:
    """Raise PeergateError unless a text is the spec with these digests, and nothing else."""
    for loc, pin in pins.items():
        here = document.data
        for name in loc:
            here = here[name]
        here["digest"] = pin.digest
    if read_yaml(text.encode()).data != document.data:
        raise PeergateError("the digests cannot be written into this spec", hint="write them by hand: `spec check`")


def _replace(path: Path, content: bytes) -> None:
    """Write a file anew in one step, with the rights it had."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.pinning")
    try:
        with partial.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(path.stat().st_mode & 0o7777)
        partial.replace(path)
    except OSError as error:
        raise UserError(f"the digests cannot be written: {error.strerror}", where=str(path)) from error
    finally:
        partial.unlink(missing_ok=True)
