"""YAML 1.2 with places: text to JSON-like data, with the line and column of each key and value.

Read from parser events by the core schema only (``no`` is text): nothing in a file can name a type, share a node or
nest without end.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from specs.system.errors import Problem, SpecError
from specs.system.yaml.problems import LintProblem, Loc, TextPosition, format_loc, printable

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


@dataclass(eq=False)
class UnreadableError(Exception):
    """The file cannot be read as YAML, so that nothing further is checked."""

    place: TextPosition
    message: str
    hint: str = ""


class YamlMapping(dict[str, Any]):
    """A mapping with the places of its keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, tuple[TextPosition, TextPosition]] = {}

    def take(self, key: str, other: YamlMapping) -> None:
        """Take a value from another mapping, with its places."""
        self[key], self.places[key] = other[key], other.places[key]


class YamlList(list[Any]):
    """A list with the places of its values."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[TextPosition] = []


@dataclass
class Document:
    """Plain data with places. A value that could not be read is None in it."""

    data: Any = None
    top: TextPosition = TextPosition(1, 1)
    problems: list[LintProblem] = field(default_factory=list[LintProblem])

    def place(self, loc: Loc, *, of_key: bool = False) -> TextPosition:
        """Return the place of a scalar, or of the key of anything larger; else of what is nearest around it."""
        here, place = self.data, self.top
        for depth, part in enumerate(loc, 1):
            if isinstance(here, YamlMapping) and part in here.places:
                key, value = here.places[str(part)]
                here = here[str(part)]
                place = key if isinstance(here, dict | list) or (of_key and depth == len(loc)) else value
            elif isinstance(here, YamlList) and isinstance(part, int) and part < len(here):
                here, place = here[part], here.places[part]
            else:
                break
        return place

    def error(self, path: Path, problems: Iterable[LintProblem], others: Iterable[Problem] = ()) -> SpecError:
        """Return the error that tells the problems of this file in reading order, and then those of other files."""
        own: list[Problem] = []
        for problem in problems:
            # An unknown key is the mistake itself; elsewhere it is the value that is wrong.
            place = problem.place or self.place(problem.loc, of_key=problem.message.startswith("unknown key"))
            statements = (format_loc(problem.loc), self._stage_name(problem.loc) + problem.message, problem.hint)
            own.append(Problem(str(path), *place, *map(printable, statements)))
        own.sort(key=lambda problem: (problem.line, problem.column))
        return SpecError(list(dict.fromkeys([*own, *others])))

    def _stage_name(self, loc: Loc) -> str:
        """Return "stage 'x': " for a place inside a stage that has a name."""
        if len(loc) < 3 or loc[0] != "stages" or loc[2] == "name" or not isinstance(loc[1], int):
            return ""
        stages: Any = self.data.get("stages")
        stage = stages[loc[1]] if isinstance(stages, list) and loc[1] < len(stages) else None
        name = stage.get("name") if isinstance(stage, dict) else None
        return f"stage '{name}': " if isinstance(name, str) else ""


class Dialect(NamedTuple):
    """What the YAML of another tool has that a spec's has not."""

    tags: tuple[str, ...] = ()
    """Tags of scalars, which are read as text: the tag, a blank and the value."""
    words: Mapping[str, bool] = {}
    """Plain words that stand for a truth value."""


CORE = Dialect()
PYYAML = Dialect(
    words={
        word: value
        for value, names in ((True, ("yes", "on", "true")), (False, ("no", "off", "false")))
        for name in names
        for word in (name, name.title(), name.upper())
    }
)
"""Fields for tools that read YAML 1.1 with PyYAML."""


def decode(raw: bytes) -> str:
    """Return a file's text; raises UnreadableError if it is too large, not UTF-8, or has a byte order mark or NUL."""
    top = TextPosition(1, 1)
    if len(raw) > MAX_BYTES:
        raise UnreadableError(top, f"the file has {len(raw)} bytes, the limit is {MAX_BYTES}")
    if raw.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise UnreadableError(top, "the file starts with a byte order mark", "save it as UTF-8 without one")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8")
        message = f"the file is not UTF-8: byte 0x{raw[error.start]:02x} cannot be read"
        raise UnreadableError(_place_after(before), message, "save it as UTF-8") from error
    before, nul, _ = text.partition("\x00")
    if nul:
        raise UnreadableError(_place_after(before), "the file holds a NUL byte", "it is not a text file")
    return text


def read_yaml(raw: bytes, dialect: Dialect = CORE) -> Document:
    """Read one YAML document into plain data with places.

    Keys given twice, numbers that are not finite, dates, anchors, aliases, merge keys and tags become problems of the
    document; what follows is read too.

    Raises:
        UnreadableError: it is not one well-formed YAML document with keys at its top level, or it is far too
            large or deep.
    """
    # A command reads a spec once for each of its profiles, and fills the data in.
    document = deepcopy(_read_core(raw)) if dialect is CORE else _Reader(decode(raw), dialect).read()
    if document.data is None and not document.problems:
        raise UnreadableError(
            TextPosition(1, 1), "the file is empty", "docs/how-to/write-a-spec.md has a complete example"
        )
    if not isinstance(document.data, dict):
        result = "a list" if isinstance(document.data, list) else "a single value"
        raise UnreadableError(document.top, f"the top level must hold keys and values, found {result}")
    return document


@lru_cache(maxsize=4)
def _read_core(raw: bytes) -> Document:
    return _Reader(decode(raw), CORE).read()


def read_document(path: Path, raw: bytes, dialect: Dialect = CORE) -> Document:
    """Read a file's YAML document; raises SpecError, with every problem, if it is not YAML or holds what is refused."""
    try:
        document = read_yaml(raw, dialect)
    except UnreadableError as error:
        raise SpecError([Problem(str(path), *error.place, "", error.message, error.hint)]) from error
    if document.problems:
        raise document.error(path, document.problems)
    return document


def dump_yaml(data: Any) -> str:
    """Return JSON-like data as YAML, keys in their order."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # pyright: ignore[reportAttributeAccessIssue]
    text = io.StringIO()
    yaml.dump(data, text)
    return text.getvalue()


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
        place = TextPosition(mark.line + 1, mark.column + 1) if mark else TextPosition(1, 1)
        reported_text = " ".join(str(part) for part in (error.context, error.problem) if part)
        raise UnreadableError(place, f"not valid YAML: {reported_text}") from error
    except ReaderError as error:
        code = error.character if isinstance(error.character, int) else ord(str(error.character)[:1] or " ")
        place = _place_after(text[: error.position])
        raise UnreadableError(place, f"control character U+{code:04X} is not allowed in YAML") from error
    except UnreadableError:
        raise
    except Exception as error:
        # The parser has no promise about what it raises on nonsense (a bad \U escape is a ValueError); to the author
        # of the file it is the same thing: this is not YAML.
        raise UnreadableError(TextPosition(1, 1), f"not valid YAML: {type(error).__name__}: {error}") from error


class _Reader:
    """Turns events into a document; its depth is bounded."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self._events, self._dialect = _events(text), dialect
        self._problems: list[LintProblem] = []
        self._nodes = 0

    def read(self) -> Document:
        document, documents = Document(problems=self._problems), 0
        for event in self._events:
            place = _start(event)
            if _is(event, "DocumentStart"):
                documents += 1
                if documents > 1:
                    hint = "keep one; remove the '---' line"
                    raise UnreadableError(place, "the file holds more than one YAML document", hint)
                if event.version or event.tags:
                    hint = "remove the line; YAML 1.2 is read"
                    raise UnreadableError(place, "YAML directives (%YAML, %TAG) are not read", hint)
            elif not _is(event, "StreamStart", "StreamEnd", "DocumentEnd"):
                document.data, document.top = self._value(event, ()), place
        return document

    def _value(self, event: Any, loc: Loc) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise UnreadableError(_start(event), f"the file holds more than {MAX_NODES} values")
        if _is(event, "Alias"):
            self._problem(event, loc, "aliases ('*name') are not read", "write the value out")
            return None
        if _is(event, "Scalar") and not event.anchor and str(event.ctag) in self._dialect.tags:
            return f"{event.ctag} {event.value}"
        self._refuse_extras(event, loc)
        if _is(event, "Scalar"):
            if not event.style and event.value in self._dialect.words:
                return self._dialect.words[event.value]
            value, message, hint = _read_scalar(event.value, plain=not event.style)
            if message:
                self._problem(event, loc, message, hint)
            return value
        if len(loc) >= MAX_DEPTH:
            raise UnreadableError(_start(event), f"nested more than {MAX_DEPTH} levels deep")
        return self._list(loc) if _is(event, "SequenceStart") else self._mapping(loc)

    def _list(self, loc: Loc) -> YamlList:
        result = YamlList()
        while not _is(event := next(self._events), "SequenceEnd"):
            result.append(self._value(event, (*loc, len(result))))
            result.places.append(_start(event))
        return result

    def _mapping(self, loc: Loc) -> YamlMapping:
        result = YamlMapping()
        while not _is(key := next(self._events), "MappingEnd"):
            if _is(key, "Alias"):
                raise UnreadableError(_start(key), "an alias cannot be a key", "write the key out")
            if not _is(key, "Scalar"):
                hint = "quote text that starts with '{' or '['"
                raise UnreadableError(_start(key), "a key must be text, found a mapping or list", hint)
            name = str(key.value)
            is_good = self._is_good_key(key, name, result, loc)
            event = next(self._events)
            value = self._value(event, (*loc, name))
            if is_good:
                result[name], result.places[name] = value, (_start(key), _start(event))
        return result

    def _is_good_key(self, event: Any, key: str, above: YamlMapping, loc: Loc) -> bool:
        plain, loc = not event.style, (*loc, key)
        read, message, hint = _read_scalar(key, plain=plain)
        if event.anchor or event.ctag is not None:
            self._refuse_extras(event, loc)
        elif plain and key == "<<":
            self._problem(event, loc, "merge keys ('<<') are not read", "write the values out")
        elif message:
            self._problem(event, loc, message, hint)
        elif not isinstance(read, str):
            hint = f"quote it: '{key}'" if key else ""
            self._problem(event, loc, f"a key must be text, got {key or 'nothing'}", hint)
        elif key in above:
            first = above.places[key][0].line
            self._problem(event, loc, f"key '{key}' is given twice, first on line {first}", "keep one of them")
        else:
            return True
        return False

    def _refuse_extras(self, event: Any, loc: Loc) -> None:
        if event.anchor:
            self._problem(event, loc, f"anchors ('&{event.anchor}') are not read", "write the value where it is used")
        if event.ctag is not None:
            self._problem(event, loc, f"tags ('{event.ctag}') are not read", "remove the tag")

    def _problem(self, event: Any, loc: Loc, message: str, hint: str) -> None:
        self._problems.append(LintProblem(loc, message, hint, place=_start(event)))


def _is(event: Any, *names: str) -> bool:
    return type(event).__name__.removesuffix("Event") in names


def _start(event: Any) -> TextPosition:
    return TextPosition(event.start_mark.line + 1, event.start_mark.column + 1)


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
    kept_text = float.__repr__(value)
    try:
        same = Decimal(text) == Decimal(kept_text)
    except InvalidOperation:  # An exponent beyond all bounds.
        same = False
    if not same:
        return None, f"{text[:40]} has more digits than a number keeps: it would be {kept_text}", f"write {kept_text}"
    return value, "", ""


def _place_after(text: str) -> TextPosition:
    return TextPosition(text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1)
