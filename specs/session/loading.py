"""From a file to a registered spec; problems have their line and column, the schema's before the rules'."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from specs import plugins, task_file
from specs.digests import digest_bytes
from specs.errors import AuditDamage, PluginFault, Problem, SpecError, UserError
from specs.home import HOME
from specs.resources import LauncherName
from specs.session.constitution import Constitution
from specs.session.defaults import fill
from specs.session.explain import explain, validate
from specs.session.lint.rules import lint, lint_constitution
from specs.session.problems import LintProblem, Loc, closest, dotted, printable
from specs.session.profiles import apply_profile, profile_names
from specs.session.session_spec import ResolvedSpec, SessionSpec
from specs.session.yaml_positions import Document, UnreadableError, read_document, read_yaml
from specs.stages.artifacts import Item
from specs.text import plain

_RESTORE = "restore the registered file; or if the change is meant, `peergate spec pin` writes the new digest"
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
    """Read a session spec and pin everything it names; whether the model exists is not checked here.

    ``profile`` and ``launcher`` replace those that the spec names. With ``allow_missing_data``, the registered digests
    of data files that do not exist are used; files without one are left out.

    Raises:
        SpecError: the spec, its constitution or its data are wrong. Holds every problem of the first of these that
            has one: the YAML, the profile, the schema with what a spec leaves out, the rules with the files that the
            spec names.
        UserError: the spec file itself cannot be read.
    """
    document = _read_document(path, _read_file(path))
    if problems := apply_profile(document, profile):
        raise document.error(path, problems)
    if launcher is not None:
        document.data["launcher"] = launcher
    filled = fill(document, path.parent)
    spec = validate(document.data, SessionSpec)
    if isinstance(spec, list):
        raise document.error(path, [*filled, *_with_remedies(path, document, spec)])
    if filled:
        raise document.error(path, filled)
    files = _Files(path, allow_missing_data)
    constitution, digests = files.read_all(spec)
    spec, task_text = files.task(spec)
    problems = [*lint(spec), *files.problems]
    if problems or files.others:
        raise document.error(path, problems, files.others)
    return ResolvedSpec(
        spec=spec.with_reasoning().with_resources(),
        constitution_digest=constitution,
        data_digests=digests,
        plugins=used_plugins(spec),
        task_text=task_text,
        origin=str(path.resolve().parent),
    )


def spec_error(path: Path, profile: str | None, problem: LintProblem) -> SpecError:
    """Return the error of a problem that was found after loading, with its place in the file.

    Raises:
        SpecError, UserError: the file changed meanwhile, as :func:`load_spec`.
    """
    document = _read_document(path, _read_file(path))
    apply_profile(document, profile)
    return document.error(path, [problem])


def used_plugins(spec: SessionSpec) -> dict[str, str]:
    """Return what the spec uses of other distributions, and all checks that are installed, with their identity now.

    Raises:
        PluginFault: files of one cannot be read, or several distributions bring the same.
    """
    named = [plugins.find(group, name) for group, name in _named(spec)]
    points = [one for one in (*named, *plugins.installed("peergate.checks")) if one is not None]
    return plugins.identities(sorted({plugins.key_of(one) for one in points}))


def _named(spec: SessionSpec) -> Iterator[tuple[plugins.Group, str]]:
    yield "peergate.tasks", spec.task
    for reviewer in spec.reviewers():
        if reviewer.is_plugin:
            yield "peergate.reviewers", reviewer.vendor
    for stage in spec.stages:
        yield "peergate.stages", stage.kind
        yield "peergate.launchers", spec.launcher_of(stage.name)
        if scorer := getattr(stage.parameters, "scorer", None):
            yield "peergate.tasks", scorer


def missing_plugins(resolved: str | bytes) -> str:
    """Return in words which plug-ins a saved spec registered that are not installed here; empty if none is missing.

    Raises:
        ValueError: this is not JSON.
        AttributeError: this is not a mapping with a mapping of plug-ins.
    """
    registered = json.loads(resolved).get("plugins", {})
    brought = {plugins.key_of(one) for group in plugins.GROUPS for one in plugins.installed(group)}
    return plain("; ".join(f"{what} ({then})" for what, then in registered.items() if what not in brought), 400)


def list_profiles(path: Path) -> tuple[str, ...]:
    """Return the profiles of a spec, none where it is no YAML; raises UserError if the file cannot be read."""
    try:
        return profile_names(read_yaml(_read_file(path)))
    except UnreadableError:
        return ()


def load_constitution(path: Path) -> tuple[Constitution, str]:
    """Return a constitution with its digest; raises SpecError, with every problem, or UserError if it is unreadable."""
    raw = _read_file(path)
    return _parse_constitution(path, raw), digest_bytes(raw)


def find_spec(text: str) -> Path:
    """Return the file, or the shipped spec, that a user means; raises UserError, with the shipped names, if neither."""
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
        PluginFault: a plug-in that it registers is not installed here.
        AuditDamage: it is no resolved spec. Peergate wrote one, so it has changed since.
    """
    try:
        return ResolvedSpec.model_validate_json(text, strict=True)
    except ValidationError as error:
        with suppress(ValueError, AttributeError, RecursionError):
            if missing := missing_plugins(text):
                raise PluginFault(f"not installed here: {missing}", hint="install what was registered") from error
        said = explain(error.errors(include_url=False)[0], ResolvedSpec)
        raise AuditDamage(
            f"this is no resolved spec: {dotted(said.loc)}: {said.message}",
            hint="it was changed, or another version of Peergate wrote it: `peergate audit verify` says which",
        ) from error


def _read_document(path: Path, raw: bytes) -> Document:
    task_file.require_no_secret(path, raw.decode("utf-8", "replace"))
    return read_document(path, raw)


def _with_remedies(path: Path, document: Document, problems: list[LintProblem]) -> Iterator[LintProblem]:
    """Tell where a seed is written, and what is wrong with the held-out split, or its digest."""
    meant = any(one.hint == "did you mean 'seed'?" for one in problems)
    for one in problems:
        missing = one.message.endswith("is missing")
        if one.loc == ("analysis", "seeds") and missing:
            if not meant:
                yield LintProblem(("seed",), "'seed' is missing", "one seed for the analysis and all stages: seed: 7")
        elif one.loc == ("heldout", "digest") and missing:
            # It is computed from the file, which is missing, or whose path is a problem of its own.
            if isinstance(named := document.data["heldout"].get("path"), str):
                yield from _Files(path, False).unreadable(("heldout", "path"), named)
        elif one.loc == ("heldout", "digest"):
            yield replace(one, hint="leave it out, or `peergate spec pin` writes it")
        else:
            yield one


class _Files:
    """The constitution and data files of one spec."""

    def __init__(self, path: Path, allow_missing: bool) -> None:
        self.folder = path.parent
        self.allow_missing = allow_missing
        self.problems: list[LintProblem] = []
        self.others: list[Problem] = []

    def read_all(self, spec: SessionSpec) -> tuple[str | None, dict[str, str]]:
        """Return the digests of the constitution, if there is one, and of the data files by name; collects problems."""
        constitution = None if spec.constitution is None else self._constitution(spec.constitution)
        digests: dict[str, str] = {}
        heldout = self._data("heldout", ("heldout",), spec.heldout.path, spec.heldout.digest, spec.analysis.n)
        for name, data in spec.data.items():
            digest = self._data(name, ("data", name), data.path, data.digest, None)
            if digest is not None:
                digests[name] = digest
            if digest is not None and digest == heldout and data.path != spec.heldout.path:
                message = f"'{data.path}' is a copy of the held-out split: their digests are equal"
                self.problems.append(LintProblem(("data", name, "path"), message, "no stage may train on it"))
        if heldout is not None:
            digests["heldout"] = heldout
        return constitution, digests

    def task(self, spec: SessionSpec) -> tuple[SessionSpec, str | None]:
        """Return the spec with its task file pinned by its digest, and the file's text; problems are collected."""
        path, _, stated = spec.task.partition("@")
        raw = self._read(("task",), path) if task_file.is_file(path) else None
        if raw is None:
            return spec, None
        try:
            text = task_file.text_of(self.folder / path, raw)
            name = task_file.pinned(path, text)
            task_file.remember(name, text)
            task_file.trust(name)
            task_file.module_of(name)
        except (SpecError, task_file.TaskFault) as error:
            self.others += error.problems if isinstance(error, SpecError) else [error.problem(self.folder)]
            return spec.model_copy(update={"task": path}), None
        if stated and name != spec.task:
            message = f"'{path}' has the digest {name.partition('@')[2]}, the spec registers {stated}"
            self.problems.append(LintProblem(("task",), message, _RESTORE))
        return spec.model_copy(update={"task": name}), text

    def _constitution(self, named: str) -> str:
        raw = self._read(("constitution",), named)
        if raw is None:
            return ""
        try:
            _parse_constitution(self.folder / named, raw)
        except SpecError as error:
            self.others += error.problems
        return digest_bytes(raw)

    def _data(self, name: str, loc: Loc, named: str, registered: str | None, items: int | None) -> str | None:
        """Check one data file; returns its digest, or the registered one where it may be missing."""
        place: Loc = (*loc, "path")
        if self.allow_missing and not (self.folder / named).exists():
            return registered
        raw = self._read(place, named)
        if raw is None:
            return None
        digest = digest_bytes(raw)
        if registered is not None and digest != registered:
            message = f"'{named}' has the digest {digest}, the spec registers {registered}"
            self.problems.append(LintProblem((*loc, "digest"), message, _RESTORE))
        count, problems = _check_items(self.folder / named, raw)
        self.others += problems
        if items is not None and not problems and count != items:
            message = f"n is {items}, '{named}' holds {count} items"
            self.problems.append(LintProblem(("analysis", "n"), message, f"write n: {count}"))
        return digest

    def unreadable(self, loc: Loc, named: str) -> list[LintProblem]:
        """Return why a file cannot be read."""
        self._read(loc, named)
        return self.problems

    def _read(self, loc: Loc, named: str) -> bytes | None:
        path = self.folder / named
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


def _read_file(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise UserError(f"there is no file '{path}'" if not path.exists() else f"'{path}' is not a file")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise UserError(f"'{path}' cannot be read: {error}") from error


def _parse_constitution(path: Path, raw: bytes) -> Constitution:
    document = _read_document(path, raw)
    found = validate(document.data, Constitution)
    problems = found if isinstance(found, list) else lint_constitution(found)
    if isinstance(found, list) or problems:
        raise document.error(path, problems)
    return found


def _check_items(path: Path, raw: bytes) -> tuple[int, list[Problem]]:
    """Return how many items a JSONL file holds and what is wrong with its lines."""
    found: list[Problem] = []
    lines = raw.removesuffix(b"\n").split(b"\n") if raw else []
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
    if rest := found[MAX_DATA_PROBLEMS:]:
        found[MAX_DATA_PROBLEMS:] = [
            Problem(str(path), rest[0].line, 1, "", f"and {len(rest)} more problems from this line on")
        ]
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
