"""From a file to a registered spec: every problem of the file, with its line and column, in one go.

Reads the spec, its constitution and the data files it names, and nothing else. What this does not check: whether
the model exists, whether training and held-out items overlap, and whether the design has enough power.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specs.digests import digest_bytes
from specs.errors import AuditDamage, Problem, SpecError, UserError
from specs.home import HOME
from specs.masking import current
from specs.resources import LauncherName
from specs.session.constitution import Constitution
from specs.session.explain import explain
from specs.session.lint.rules import lint, lint_constitution
from specs.session.problems import LintProblem, Loc, closest, dotted, printable
from specs.session.profiles import apply_profile, profile_names
from specs.session.repair import CONSTITUTION_STANDINS, SESSION_STANDINS, validate
from specs.session.session_spec import ResolvedSpec, SessionSpec
from specs.session.used_plugins import used_plugins
from specs.session.yaml_positions import Document, Place, UnreadableError, read_yaml
from specs.stages.artifacts import Item

MAX_DATA_BYTES = 1 << 28
MAX_DATA_PROBLEMS = 20
"""More lines than this are wrong for one reason; the rest is counted."""


def load_spec(
    path: Path,
    profile: str | None = None,
    *,
    allow_missing_data: bool = False,
    launcher: LauncherName | None = None,
) -> ResolvedSpec:
    """Read a session spec and pin everything it names.

    Args:
        path: the spec file.
        profile: the profile to use, instead of the one that the spec names.
        launcher: stands in for the session's own, as if it were written there.
        allow_missing_data: accept that data files are not here yet. Their registered digests stand in, and a data
            file without one is left out of ``data_digests``. The constitution has to be here in any case.

    Raises:
        SpecError: the spec, its constitution or its data are wrong; holds every problem found.
        UserError: the spec file itself cannot be read.
    """
    report = _Report(path)
    resolved = None
    document = report.read(_read_spec(path))
    if document is not None:
        if problems := apply_profile(document, profile):
            # Not more: what the profile would have given would be told as missing.
            report.add(document, problems)
            report.check()
        if launcher is not None and isinstance(document.data, dict):
            document.data["launcher"] = launcher
        spec, problems, damaged = validate(document, SessionSpec, SESSION_STANDINS)
        data = _Files(path, report, damaged, allow_missing_data)
        if spec is None:
            report.add(document, problems)
        else:
            digests = data.read_all(spec)
            report.add(document, data.hint_digest(problems))
            report.add(document, [found for found in lint(spec) + data.problems if not found.rests_on(damaged)])
            resolved = (spec, digests)
    report.check()
    if resolved is None:  # A document without problems always resolves; a type checker cannot know.
        raise SpecError([Problem(str(path), 1, 1, "", "the spec could not be read")])
    spec, (constitution, digests) = resolved
    return ResolvedSpec(
        spec=spec.with_reasoning().with_resources(),
        constitution_digest=constitution,
        data_digests=digests,
        plugins=used_plugins(spec),
        origin=str(path.resolve().parent),
    )


def list_profiles(path: Path) -> tuple[str, ...]:
    """Return the profiles of a spec; none when it cannot be read, which :func:`load_spec` tells about.

    Raises:
        UserError: the file itself cannot be read.
    """
    try:
        return profile_names(read_yaml(_read_spec(path)))
    except UnreadableError:
        return ()


def load_constitution(path: Path) -> tuple[Constitution, str]:
    """Read a constitution; returns it with the digest of the file.

    Raises:
        SpecError: it is wrong; holds every problem found.
        UserError: the file cannot be read.
    """
    raw = _read_spec(path)
    constitution, problems = _parse_constitution(path, raw)
    if problems or constitution is None:
        raise SpecError(problems)
    return constitution, digest_bytes(raw)


def find_spec(text: str) -> Path:
    """Return the spec file a user means: an existing file, or the bare name of a shipped spec.

    Raises:
        UserError: neither; the hint lists the shipped names.
    """
    path = Path(text)
    library = HOME / "specs" / "library"
    shipped = {file.stem: file for file in sorted(library.glob("*.yaml")) if file.stem != "constitution"}
    try:
        if path.is_file():
            return path
        folder = path.is_dir()
    except (OSError, ValueError):  # A name no file can have: too long, or with a NUL character.
        folder = False
    if text in shipped:
        return shipped[text]
    match = closest(path.name.removesuffix(".yaml"), shipped)
    names = f"shipped specs: {', '.join(shipped) or 'none'}"
    hint = f"did you mean '{match}'? {names}" if match else names
    raise UserError(f"'{text}' is a folder, not a spec" if folder else f"there is no spec '{text}'", hint=hint)


def read_resolved(text: str | bytes) -> ResolvedSpec:
    """Read back, strictly, what ``ResolvedSpec.canonical()`` wrote.

    Raises:
        AuditDamage: it is not one; it was written by Peergate, so it has been changed since.
    """
    try:
        return ResolvedSpec.model_validate_json(text, strict=True)
    except ValidationError as error:
        said = explain(error.errors(include_url=False)[0], ResolvedSpec)
        raise AuditDamage(
            f"this is no resolved spec: {dotted(said.loc)}: {said.message}", hint="the saved session was changed"
        ) from error


class _Report:
    """Collects the problems of a file and of the files it names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.own: list[Problem] = []
        self.others: list[Problem] = []

    def read(self, raw: bytes) -> Document | None:
        text = raw.decode("utf-8", "replace")
        for start, what in current().places(text):
            # It is kept as it is, by its digest. Nothing else is said of the file: it would quote it.
            hint = "take it out of the file; keys are read from variables of the environment"
            line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
            self.own.append(Problem(str(self.path), line, column, "", f"here begins a secret ({what})", hint))
        if self.own:
            return None
        try:
            document = read_yaml(raw)
        except UnreadableError as error:
            self.own.append(Problem(str(self.path), *error.place, "", error.message, error.hint))
            return None
        for place, found in document.problems:
            self._add(document, found, place)
        return document

    def add(self, document: Document, problems: Iterable[LintProblem]) -> None:
        for found in problems:
            self._add(document, found, _place(document, found))

    def _add(self, document: Document, found: LintProblem, place: Place) -> None:
        said = (dotted(found.loc), _stage_name(document, found.loc) + found.message, found.hint)
        self.own.append(Problem(str(self.path), *place, *map(printable, said)))

    def check(self) -> None:
        """Raise what was found, in reading order.

        Raises:
            SpecError: something was.
        """
        own = sorted(dict.fromkeys(self.own), key=lambda problem: (problem.line, problem.column))
        problems = [*own, *dict.fromkeys(self.others)]
        if problems:
            raise SpecError(problems)


class _Files:
    """The constitution and data files of one spec."""

    def __init__(self, path: Path, report: _Report, damaged: frozenset[Loc], allow_missing: bool) -> None:
        self.folder = path.parent
        self.report = report
        self.damaged = damaged
        self.allow_missing = allow_missing
        self.problems: list[LintProblem] = []
        self.heldout_digest = ""

    def read_all(self, spec: SessionSpec) -> tuple[str, dict[str, str]]:
        """Return the constitution's digest and those of the data files by name; problems are collected."""
        constitution = self._constitution(spec.constitution)
        digests: dict[str, str] = {}
        heldout = self._data("heldout", ("heldout",), spec.heldout.path, spec.heldout.digest, spec.analysis.n)
        self.heldout_digest = heldout or ""
        for name, data in spec.data.items():
            digest = self._data(name, ("data", name), data.path, data.digest, None)
            if digest is not None:
                digests[name] = digest
            if digest is not None and digest == heldout and data.path != spec.heldout.path:
                message = f"'{data.path}' is a copy of the held-out split: their digests are equal"
                uses: tuple[Loc, ...] = (("heldout", "path"),)
                self.problems.append(LintProblem(("data", name, "path"), message, "no stage may train on it", uses))
        if heldout is not None:
            digests["heldout"] = heldout
        return constitution, digests

    def hint_digest(self, problems: list[LintProblem]) -> list[LintProblem]:
        """Tell the digest of the held-out split where it is missing or no digest."""
        key: Loc = ("heldout", "digest")
        if not self.heldout_digest:
            return problems
        hint = f"the file's digest is {self.heldout_digest}"
        return [LintProblem(key, found.message, hint) if found.loc == key else found for found in problems]

    def _constitution(self, named: str) -> str:
        raw = self._read(("constitution",), named)
        if raw is None:
            return ""
        self.report.others += _parse_constitution(self.folder / named, raw)[1]
        return digest_bytes(raw)

    def _data(self, name: str, loc: Loc, named: str, registered: str | None, items: int | None) -> str | None:
        """Check one data file; returns its digest, or the registered one where it may be missing."""
        place: Loc = (*loc, "path")
        if self._is_damaged(place):
            return None
        if self.allow_missing and not (self.folder / named).exists():
            return registered
        raw = self._read(place, named)
        if raw is None:
            return None
        digest = digest_bytes(raw)
        if registered is not None and digest != registered:
            message = f"'{named}' has the digest {digest}, the spec registers {registered}"
            hint = "restore the registered file, or register the new digest if the change is meant"
            self.problems.append(LintProblem((*loc, "digest"), message, hint))
        count, problems = _check_items(self.folder / named, raw)
        self.report.others += problems
        if items is not None and not problems and count != items:
            message = f"n is {items}, '{named}' holds {count} items"
            self.problems.append(LintProblem(("analysis", "n"), message, f"write n: {count}", (place,)))
        return digest

    def _read(self, loc: Loc, named: str) -> bytes | None:
        path = self.folder / named
        if self._is_damaged(loc):
            return None
        try:
            if not path.exists():
                hint = f"paths start from the spec's folder {self.folder.resolve()}"
                self.problems.append(LintProblem(loc, f"there is no file '{named}'", hint))
            elif not path.is_file():
                self.problems.append(LintProblem(loc, f"'{named}' is not a file"))
            elif path.stat().st_size > MAX_DATA_BYTES:
                self.problems.append(LintProblem(loc, f"'{named}' is larger than {MAX_DATA_BYTES} bytes"))
            else:
                return path.read_bytes()
        except (OSError, ValueError) as error:
            self.problems.append(LintProblem(loc, f"'{named}' cannot be read: {error}"))
        return None

    def _is_damaged(self, loc: Loc) -> bool:
        return LintProblem(loc, "").rests_on(self.damaged)


def _read_spec(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise UserError(f"there is no file '{path}'" if not path.exists() else f"'{path}' is not a file")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise UserError(f"'{path}' cannot be read: {error}") from error


def _parse_constitution(path: Path, raw: bytes) -> tuple[Constitution | None, list[Problem]]:
    report = _Report(path)
    constitution = None
    document = report.read(raw)
    if document is not None:
        constitution, problems, damaged = validate(document, Constitution, CONSTITUTION_STANDINS)
        report.add(document, problems)
        if constitution is not None:
            report.add(document, [found for found in lint_constitution(constitution) if not found.rests_on(damaged)])
    return constitution, sorted(dict.fromkeys(report.own), key=lambda problem: (problem.line, problem.column))


def _place(document: Document, found: LintProblem) -> Place:
    # An unknown key is the mistake itself; elsewhere it is the value that is wrong.
    return document.key_place(found.loc) if found.message.startswith("unknown key") else document.place(found.loc)


def _stage_name(document: Document, loc: Loc) -> str:
    """Return "stage 'x': " for a place inside a stage that has a name."""
    if len(loc) < 3 or loc[0] != "stages":
        return ""
    stages: Any = document.data.get("stages")
    stage = stages[loc[1]] if isinstance(stages, list) and isinstance(loc[1], int) and loc[1] < len(stages) else None
    name = stage.get("name") if isinstance(stage, dict) else None
    return f"stage '{name}': " if isinstance(name, str) and loc[2] != "name" else ""


def _check_items(path: Path, raw: bytes) -> tuple[int, list[Problem]]:
    """Return how many items a JSONL file holds and what is wrong with its lines."""
    found: list[Problem] = []
    lines = raw.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        item = _read_item(line)
        if isinstance(item, Item):
            if item.id in seen:
                message = f"id '{item.id}' is already used on line {seen[item.id]}"
                found.append(Problem(str(path), number, 1, "id", printable(message), "ids are unique"))
            seen.setdefault(item.id, number)
        else:
            found += [Problem(str(path), number, column, *map(printable, said)) for column, *said in item]
    if not lines:
        found.append(Problem(str(path), 1, 1, "", "the file holds no items", "one JSON object a line"))
    if len(found) > MAX_DATA_PROBLEMS:
        rest = len(found) - MAX_DATA_PROBLEMS
        last = found[MAX_DATA_PROBLEMS]
        found = found[:MAX_DATA_PROBLEMS]
        found.append(Problem(str(path), last.line, 1, "", f"and {rest} more problems from this line on"))
    return len(lines), found


def _read_item(line: bytes) -> Item | list[tuple[int, str, str]]:
    """Return the item of a line, or (column, keys, message) for each thing wrong with it."""
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return [(error.colno, "", f"not valid JSON: {error.msg}" if line.strip() else "the line is empty")]
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        return [(1, "", f"not valid JSON: {type(error).__name__}")]
    try:
        return Item.model_validate_json(line, strict=True)
    except ValidationError as error:
        found: dict[Loc, tuple[int, str, str]] = {}
        for entry in error.errors(include_url=False):
            said = explain(entry, Item)
            # A union is reported once for each of its members.
            loc = said.loc[:2] if said.loc[:1] == ("constraint",) else said.loc
            message = "must be text or a whole number" if len(said.loc) > 2 else said.message
            found.setdefault(loc, (1, dotted(loc), message))
        return list(found.values())
