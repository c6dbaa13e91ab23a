"""YAML 1.2 with places: text to plain JSON-like data, and where each key and value stands.

Built from parser events, not from ruamel's constructors: nothing in a file can name a type, share a node or nest
without end, and every scalar is read by the YAML 1.2 core schema only (``no`` is text, ``1e-5`` is a number).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from specs.session.problems import LintProblem, Loc

MAX_BYTES = 1 << 20
MAX_DEPTH = 24
MAX_NODES = 50_000
MAX_INT = 2**53
"""Canonical JSON refuses integers from here on, so a spec cannot hold one."""

_NULL = ("", "~", "null", "Null", "NULL")
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?")
_UNREADABLE = re.compile("[\x00\ud800-\udfff]")


class Place(NamedTuple):
    """A 1-based line and column."""

    line: int
    column: int


class UnreadableError(Exception):
    """The file cannot be read as YAML at all; nothing further can be said about it."""

    def __init__(self, place: Place, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.place = place
        self.message = message
        self.hint = hint


@dataclass
class Document:
    """Plain data with places. ``bad`` lists values that could not be read and stand as None."""

    data: Any = None
    keys: dict[Loc, Place] = field(default_factory=dict[Loc, Place])
    values: dict[Loc, Place] = field(default_factory=dict[Loc, Place])
    problems: list[tuple[Place, LintProblem]] = field(default_factory=list[tuple[Place, LintProblem]])
    bad: set[Loc] = field(default_factory=set[Loc])
    scalars: set[Loc] = field(default_factory=set[Loc])

    def place(self, loc: Loc) -> Place:
        """Return where a scalar value, or the key of anything larger, stands; else the nearest thing around it."""
        for end in range(len(loc), 0, -1):
            here = loc[:end]
            if here in self.scalars:
                return self.values[here]
            if here in self.keys:
                return self.keys[here]
            if here in self.values:
                return self.values[here]
        return self.values.get((), Place(1, 1))

    def key_place(self, loc: Loc) -> Place:
        """Return where the key itself stands."""
        return self.keys.get(loc) or self.place(loc)

    def move(self, old: Loc, new: Loc) -> None:
        """Give everything at and below ``old`` the same places under ``new``: a misspelt key was read as another."""
        for places in (self.keys, self.values):
            for loc in [loc for loc in places if loc[: len(old)] == old]:
                places[new + loc[len(old) :]] = places[loc]
        for members in (self.bad, self.scalars):
            members.update({new + loc[len(old) :] for loc in members if loc[: len(old)] == old})

    def replace(self, old: Loc, new: Loc) -> None:
        """Let what stands at ``old`` be the value of ``new``: what was there has no place any more."""
        for places in (self.keys, self.values):
            for loc in [loc for loc in places if loc[: len(new)] == new]:
                del places[loc]
        for members in (self.bad, self.scalars):
            members -= {loc for loc in members if loc[: len(new)] == new}
        self.move(old, new)

    def close_gap(self, above: Loc, number: int, left: int) -> None:
        """Move what stands in a list after the entry that was taken out to its new number.

        Args:
            above: the list.
            number: the entry that is no longer there.
            left: how many entries there are now.
        """
        for place in range(number, left + 1):
            self.replace((*above, place + 1), (*above, place))


@dataclass
class _Frame:
    """An open mapping or list."""

    loc: Loc
    value: dict[str, Any] | list[Any]
    key: str | None = None
    attach: bool = True
    muted: bool = False
    """Below a key that was refused: read for its own mistakes, but no part of the document."""
    lines: dict[str, int] = field(default_factory=dict[str, int])

    def ignores_next(self) -> bool:
        """Say whether the next value is no part of the document."""
        return self.muted or not self.attach


def decode(raw: bytes) -> str:
    """Return the text of a file.

    Raises:
        UnreadableError: too large, not UTF-8, a byte order mark or a NUL byte.
    """
    top = Place(1, 1)
    if len(raw) > MAX_BYTES:
        raise UnreadableError(top, f"the file has {len(raw)} bytes, at most {MAX_BYTES} are read")
    if raw.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise UnreadableError(top, "the file starts with a byte order mark", "save it as UTF-8 without one")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8")
        message = f"the file is not UTF-8: byte 0x{raw[error.start]:02x} cannot be read"
        raise UnreadableError(_place_after(before), message, "save it as UTF-8") from error
    if "\x00" in text:
        raise UnreadableError(
            _place_after(text[: text.index("\x00")]), "the file holds a NUL byte", "it is not a text file"
        )
    return text


def read_yaml(raw: bytes) -> Document:
    """Read one YAML document into plain data with places.

    Keys given twice, numbers that are not finite, dates, anchors, aliases, merge keys and tags become problems of the
    document; reading goes on behind them.

    Raises:
        UnreadableError: it is not one well-formed YAML document with keys at its top level, or it is far too
            large or deep.
    """
    builder = _Builder()
    for event in _events(decode(raw)):
        builder.take(event)
    document = builder.document
    if document.data is None and not document.problems:
        raise UnreadableError(Place(1, 1), "the file is empty", "docs/how-to/write-a-spec.md has a complete example")
    if not isinstance(document.data, dict):
        found = "a list" if isinstance(document.data, list) else "a single value"
        raise UnreadableError(
            document.values.get((), Place(1, 1)), f"the top level must hold keys and values, found {found}"
        )
    return document


def _events(text: str) -> Iterator[Any]:
    """Yield ruamel's parser events."""
    # Imported here: the contracts are imported by every job, the parser is needed only where a spec is read.
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError
    from ruamel.yaml.reader import ReaderError

    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        said = " ".join(str(part) for part in (error.context, error.problem) if part)
        raise UnreadableError(place, f"not valid YAML: {said}") from error
    except ReaderError as error:
        code = error.character if isinstance(error.character, int) else ord(str(error.character)[:1] or " ")
        place = _place_after(text[: error.position])
        raise UnreadableError(place, f"control character U+{code:04X} is not allowed in YAML") from error
    except UnreadableError:
        raise
    except Exception as error:
        # The parser has no promise about what it raises on nonsense (a bad \U escape is a ValueError); to the author
        # of the file it is the same thing: this is not YAML.
        raise UnreadableError(Place(1, 1), f"not valid YAML: {type(error).__name__}: {error}") from error


class _Builder:
    """Turns events into a document without recursion."""

    def __init__(self) -> None:
        self.document = Document()
        self._stack: list[_Frame] = []
        self._documents = 0
        self._nodes = 0

    def take(self, event: Any) -> None:
        name = type(event).__name__
        place = Place(event.start_mark.line + 1, event.start_mark.column + 1)
        if name == "DocumentStartEvent":
            self._start_document(event, place)
        elif name == "ScalarEvent":
            self._take_scalar(event, place)
        elif name == "AliasEvent":
            self._take_alias(place)
        elif name == "MappingStartEvent":
            self._open(event, place, {})
        elif name == "SequenceStartEvent":
            self._open(event, place, [])
        elif name in ("MappingEndEvent", "SequenceEndEvent"):
            self._stack.pop()

    def _start_document(self, event: Any, place: Place) -> None:
        self._documents += 1
        if self._documents > 1:
            raise UnreadableError(
                place, "the file holds more than one YAML document", "keep one; remove the '---' line"
            )
        if event.version or event.tags:
            raise UnreadableError(
                place, "YAML directives (%YAML, %TAG) are not read", "remove the line; YAML 1.2 is read"
            )

    def _take_scalar(self, event: Any, place: Place) -> None:
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            self._take_key(frame, event, place)
            return
        loc = self._next_loc()
        self._refuse_extras(event, place, loc)
        value, message, hint = _read_scalar(event.value, plain=event.style is None or event.style == "")
        if message:
            self._problem(place, loc, message, hint, bad=True)
        self._attach(value, place, loc, scalar=True)

    def _take_key(self, frame: _Frame, event: Any, place: Place) -> None:
        plain = event.style is None or event.style == ""
        read, message, hint = _read_scalar(event.value, plain=plain)
        key = str(event.value)
        loc = (*frame.loc, key)
        frame.key = key
        frame.attach = False
        if event.anchor or event.ctag is not None:
            self._refuse_extras(event, place, loc)
        elif plain and key == "<<":
            self._problem(place, loc, "merge keys ('<<') are not read", "write the values out")
        elif message:
            self._problem(place, loc, message, hint)
        elif not isinstance(read, str):
            self._problem(
                place, loc, f"a key must be text, got {key or 'nothing'}", f"quote it: '{key}'" if key else ""
            )
        elif key in frame.lines:
            self._problem(
                place, loc, f"key '{key}' is given twice, first on line {frame.lines[key]}", "keep one of them"
            )
        else:
            frame.attach = True
            frame.lines[key] = place.line
            if not frame.muted:
                self.document.keys[loc] = place

    def _take_alias(self, place: Place) -> None:
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            raise UnreadableError(place, "an alias cannot be a key", "write the key out")
        loc = self._next_loc()
        self._problem(place, loc, "aliases ('*name') are not read", "write the value out", bad=True)
        self._attach(None, place, loc, scalar=True)

    def _open(self, event: Any, place: Place, value: dict[str, Any] | list[Any]) -> None:
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            raise UnreadableError(
                place, "a key must be text, found a mapping or list", "quote text that starts with '{' or '['"
            )
        if len(self._stack) >= MAX_DEPTH:
            raise UnreadableError(place, f"nested more than {MAX_DEPTH} levels deep")
        loc = self._next_loc()
        self._refuse_extras(event, place, loc)
        muted = frame is not None and frame.ignores_next()
        self._attach(value, place, loc)
        self._stack.append(_Frame(loc, value, muted=muted))

    def _refuse_extras(self, event: Any, place: Place, loc: Loc) -> None:
        if event.anchor:
            self._problem(place, loc, f"anchors ('&{event.anchor}') are not read", "write the value where it is used")
        if event.ctag is not None:
            self._problem(place, loc, f"tags ('{event.ctag}') are not read", "remove the tag", bad=True)

    def _next_loc(self) -> Loc:
        if not self._stack:
            return ()
        frame = self._stack[-1]
        return (*frame.loc, len(frame.value) if isinstance(frame.value, list) else str(frame.key))

    def _attach(self, value: Any, place: Place, loc: Loc, *, scalar: bool = False) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise UnreadableError(place, f"the file holds more than {MAX_NODES} values")
        document = self.document
        frame = self._stack[-1] if self._stack else None
        if frame is None:
            document.data = value
        elif isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.attach:
            frame.value[str(frame.key)] = value
        if frame is None or not frame.ignores_next():
            document.values[loc] = place
            if scalar:
                document.scalars.add(loc)
        if frame is not None:
            frame.key = None
            frame.attach = True

    def _problem(self, place: Place, loc: Loc, message: str, hint: str, *, bad: bool = False) -> None:
        self.document.problems.append((place, LintProblem(loc, message, hint)))
        frame = self._stack[-1] if self._stack else None
        if bad and not (frame is not None and frame.ignores_next()):
            self.document.bad.add(loc)


def _read_scalar(text: str, *, plain: bool) -> tuple[Any, str, str]:
    """Return the value of a scalar by the core schema, with a message and hint when it is refused."""
    if _UNREADABLE.search(text):
        return None, "the text holds a NUL character or half of a character pair", "remove the escape"
    if not plain:
        return text, "", ""
    if text in _NULL:
        return None, "", ""
    if text in _BOOL:
        return _BOOL[text], "", ""
    if _INT.fullmatch(text):
        # Length first: Python refuses to convert numbers of thousands of digits.
        number = int(text, 0 if text[:2] in ("0o", "0x") else 10) if len(text) < 40 else MAX_INT
        if abs(number) >= MAX_INT:
            return None, f"{text[:40]} is too large: whole numbers stay below 2**53", "quote it if it is a name"
        return number, "", ""
    if _FLOAT.fullmatch(text):
        return _read_float(text)
    if _NOT_FINITE.fullmatch(text):
        return None, f"{text} is not a number a spec can hold", "write a finite number"
    if _DATE.fullmatch(text):
        return None, f"{text} would be read as a date", f"quote it: '{text}'"
    return text, "", ""


def _read_float(text: str) -> tuple[float | None, str, str]:
    """Return a number that is the decimal of its text; a threshold that rounding moved is not the registered one."""
    value = float(text)
    if not math.isfinite(value):
        return None, f"{text[:40]} is too large for a number", ""
    kept = float.__repr__(value)
    try:
        same = Decimal(text) == Decimal(kept)
    except InvalidOperation:  # An exponent beyond all bounds.
        same = False
    if not same:
        return None, f"{text[:40]} has more digits than a number keeps: it would be {kept}", f"write {kept}"
    return value, "", ""


def _place_after(text: str) -> Place:
    return Place(text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1)
