"""From a file to a registered spec; problems have their line and column, the schema's before the rules'."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specs import plugins, task_file
from specs.confinement import bubblewrap, verifier_process
from specs.data.registered import Registered, read_registered
from specs.data.tables import MAX_DATA_BYTES, digest_of, size_of
from specs.digests import digest_bytes
from specs.errors import AuditDamage, PluginFault, Problem, SpecError, UserError
from specs.home import HOME
from specs.resources import LauncherName
from specs.session.constitution import Constitution
from specs.session.defaults import fill
from specs.session.explain import explain, validate
from specs.session.lint.item_rules import ANSWERED, unread_turns, verified_by, without_answers
from specs.session.lint.rules import lint, lint_constitution
from specs.session.lint.trainer_rules import given_by
from specs.session.problems import LintProblem, Loc, closest, dotted, printable
from specs.session.profiles import apply_profile, profile_names
from specs.session.session_spec import DataFile, HeldOut, ResolvedSpec, SessionSpec
from specs.session.yaml_positions import Document, UnreadableError, read_document, read_yaml
from specs.stages.artifacts import Item
from specs.stages.recipes import script_file
from specs.stages.registry import kind_of
from specs.stages.stage import TASKS
from specs.text import plain
from specs.trainers import trainer_file

_HINTS: dict[Loc, str] = {
    ("analysis", "baseline"): "name it where not just two stages measure the held-out split",
    ("analysis", "treatment"): "name it where not just two stages measure the held-out split",
    ("analysis", "minimum_effect"): "the smallest gain that would matter, such as 0.2",
    ("budget",): "jobs on other machines need one: budget: {max_cost_usd: 20, machine_usd_per_hour: 2.5}",
    ("budget", "machine_usd_per_hour"): "what the machine costs you; 0 where it is your own",
}
"""What to write where nothing can be filled in."""
_RESTORE = "restore the registered file; or if the change is meant, `peergate spec pin` writes the new digest"
_FITTING = "the task's file says in its Item which fields items have"
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
    spec, constitution, digests = files.read_all(spec)
    spec, task_text = files.task(spec)
    spec, scripts = files.scripts(spec)
    problems = [*lint(spec), *files.problems]
    problems += unread_turns(spec, files.turns)
    if not problems:
        files.require_answers(spec)
    if not problems and not files.others:
        files.require_fitting(spec)
    if problems or files.others:
        raise document.error(path, problems, files.others)
    return ResolvedSpec(
        spec=spec.with_reasoning().with_resources().with_installed(),
        constitution_digest=constitution,
        data_digests=digests,
        plugins=used_plugins(spec),
        task_text=task_text,
        scripts=scripts,
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


def default_profile(path: Path) -> str | None:
    """Return the profile that a spec names for itself, None where it names none or is no YAML."""
    with suppress(UnreadableError):
        data: Any = read_yaml(_read_file(path)).data
        return str(data["profile"]) if isinstance(data, dict) and "profile" in data else None
    return None


def load_constitution(path: Path) -> tuple[Constitution, str]:
    """Return a constitution with its digest; raises SpecError, with every problem, or UserError if it is unreadable."""
    raw = _read_file(path)
    return _parse_constitution(path, raw), digest_bytes(raw)


def shipped() -> dict[str, Path]:
    """Return the specs that come with Peergate, by name."""
    library = HOME / "specs" / "library"
    return {file.stem: file for file in sorted(library.glob("*.yaml")) if file.stem != "constitution"}


def find_spec(text: str) -> Path:
    """Return the file, or the shipped spec, that a user means; raises UserError, with the shipped names, if neither."""
    path = Path(text)
    known = shipped()
    try:
        if path.is_file():
            return path
        other = "a folder" if path.is_dir() else "no file" if path.exists() else ""
    except (OSError, ValueError):  # A name no file can have: too long, or with a NUL character.
        other = ""
    if text in known:
        return known[text]
    match = closest(path.name.removesuffix(".yaml"), known)
    names = f"shipped specs: {', '.join(known) or 'none'}"
    hint = f"did you mean '{match}'? {names}" if match else names
    raise UserError(f"'{text}' is {other}, not a spec" if other else f"there is no spec '{text}'", hint=hint)


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
        elif one.loc == ("analysis", "n") and missing:
            # Counted from the held-out split, unless that cannot be read: a problem of its own.
            if not any(other.loc[0] == "heldout" for other in problems):
                yield from _Files(path, False).unreadable(("heldout", "path"), document.data["heldout"]["path"])
        elif missing and one.loc in _HINTS:
            yield replace(one, hint=_HINTS[one.loc])
        else:
            yield one


class _Files:
    """The constitution and data files of one spec."""

    def __init__(self, path: Path, allow_missing: bool) -> None:
        self.folder = path.parent
        self.allow_missing = allow_missing
        self.problems: list[LintProblem] = []
        self.others: list[Problem] = []
        self.items: dict[str, bytes] = {}
        self.turns: set[str] = set()
        """Data files without problems, by the name that inputs have for them."""

    def read_all(self, spec: SessionSpec) -> tuple[SessionSpec, str | None, dict[str, str]]:
        """Return the spec, which then says what each data file holds, and the digests of constitution and data."""
        constitution = None if spec.constitution is None else self._constitution(spec.constitution)
        digests: dict[str, str] = {}
        data: dict[str, DataFile] = {}
        heldout = self._data(("heldout",), spec.heldout, spec.analysis.n)
        for name, named in spec.data.items():
            data[name] = named
            if (found := self._data(("data", name), named, None)) is None:
                if self.allow_missing and named.digest:
                    digests[name] = named.digest
                continue
            # Items are what a data file holds where nothing is registered: older registrations stay.
            digests[name] = digest_bytes(found.data)
            pinned = {"digest": digests[name]} if named.digest else {}
            data[name] = named.model_copy(update={"held": None if found.held == "items" else found.held} | pinned)
            if heldout and found.data == heldout.data and named.path != spec.heldout.path:
                message = f"'{named.path}' is a copy of the held-out split: their digests are equal"
                self.problems.append(LintProblem(("data", name, "path"), message, "no stage may train on it"))
        split = spec.heldout
        if heldout is not None:
            digests["heldout"] = digest_bytes(heldout.data)
            # What is registered is the digest of the rows that jobs read; of a file in their form it is the file's.
            split = split.model_copy(update={"digest": digests["heldout"]})
        elif self.allow_missing:
            digests["heldout"] = split.digest
        return spec.model_copy(update={"data": data, "heldout": split}), constitution, digests

    def task(self, spec: SessionSpec) -> tuple[SessionSpec, str | None]:
        """Return the spec with its task file pinned by its digest, and the file's text; problems are collected.

        Raises PluginFault if there is no sandbox in which the file can be run.
        """
        path, _, stated = spec.task.partition("@")
        raw = self._read(("task",), path) if task_file.is_file(path) else None
        if raw is None:
            return spec, None
        try:
            text = task_file.text_of(self.folder / path, raw)
            name = task_file.pinned(path, text)
            task_file.remember(name, text, spec.verifier.limits())
            task_file.trust(name)
            verifier_process.described(name)
        except (SpecError, task_file.TaskFault) as error:
            self.others += error.problems if isinstance(error, SpecError) else [error.problem(self.folder)]
            return spec.model_copy(update={"task": path}), None
        host = bubblewrap.this_host()
        if host is not None and bubblewrap.uncovered(host, [self.folder / spec.heldout.path]):
            message = "the held-out items lie in a folder that the verifier's sandbox shows"
            hint = "keep them outside of /usr and of the Python environment"
            self.problems.append(LintProblem(("heldout", "path"), message, hint))
        if stated and name != spec.task:
            message = f"'{path}' has the digest {name.partition('@')[2]}, the spec registers {stated}"
            self.problems.append(LintProblem(("task",), message, _RESTORE))
        return spec.model_copy(update={"task": name}), text

    def scripts(self, spec: SessionSpec) -> tuple[SessionSpec, dict[str, str]]:
        """Return the spec with each stage's script pinned by its digest, and the texts; problems are collected."""
        texts: dict[str, str] = {}
        stages = list(spec.stages)
        for index, stage in enumerate(spec.stages):
            loc: Loc = ("stages", index, "script")
            path = script_file.path_of(stage.script or "")
            kind = kind_of(stage)
            raw = self._read(loc, path) if path and (kind.runs_code or kind.takes_script) else None
            if raw is None:
                continue
            needed: tuple[str, ...] = ()
            try:
                text = task_file.text_of(self.folder / path, raw)
                if kind.runs_code and trainer_file.is_trainer_file(path):
                    given = given_by(spec, index)
                    if isinstance(given, LintProblem):
                        self.problems.append(given)
                        continue
                    text, needed = trainer_file.as_script(self.folder / path, raw, given)
                script_file.require_script(text, path)
            except SpecError as error:
                self.others += error.problems
                continue
            except UserError as error:
                self.problems.append(LintProblem(loc, f"'{path}': {error.message}", error.hint))
                continue
            name = script_file.pinned(path, text)
            if stage.script != path and name != stage.script:
                message = f"'{path}' has the digest {script_file.digest_of(name)}, the spec registers another"
                self.problems.append(LintProblem(loc, message, _RESTORE))
            digest = script_file.digest_of(name)
            texts[digest] = text
            pinned: dict[str, object] = {"code": digest}
            if needed:
                pinned["requires"] = script_file.with_needed(stage.parameters.requires, needed)
            parameters = stage.parameters.model_copy(update=pinned)
            stages[index] = stage.model_copy(update={"script": name, "parameters": parameters})
        return spec.model_copy(update={"stages": tuple(stages)}), texts

    def require_fitting(self, spec: SessionSpec) -> None:
        """Collect a problem for each field of an item that is not as the user's own task says its items are."""
        if spec.task in TASKS or not verifier_process.described(spec.task).own_items:
            return
        for name in sorted(verified_by(spec, spec.task) & self.items.keys()):
            named = spec.heldout if name == "heldout" else spec.data[name.removeprefix("data.")]
            lines = self.items[name].removesuffix(b"\n").split(b"\n")
            requests = [{"do": "misfits", "item": json.loads(line)} for line in lines]
            found: list[Problem] = []
            for number, said in enumerate(verifier_process.ask(spec.task, requests), 1):
                for one in said.get("misfits", ()):
                    keys, told = map(printable, map(str, one))
                    found.append(Problem(str(self.folder / named.path), number, 1, keys, told, _FITTING))
            self.others += _at_most(found)

    def require_answers(self, spec: SessionSpec) -> None:
        """Collect a problem for each file whose items name no answer to compare with: one for all of its lines."""
        for one in without_answers(spec, self.items):
            told = (
                f"task {ANSWERED} compares with the answer that an item names; {one.lacking} of {one.items} name none"
            )
            named = spec.heldout if one.name == "heldout" else spec.data[one.name.partition(".")[2]]
            hint = 'write "constraint": {"answer": "Paris"} in each item, or take another task'
            self.others.append(Problem(str(self.folder / named.path), one.line, 1, "constraint.answer", told, hint))

    def _constitution(self, named: str) -> str:
        raw = self._read(("constitution",), named)
        if raw is None:
            return ""
        try:
            _parse_constitution(self.folder / named, raw)
        except SpecError as error:
            self.others += error.problems
        return digest_bytes(raw)

    def _data(self, loc: Loc, named: DataFile | HeldOut, n: int | None) -> Registered | None:
        """Check one data file and return it as it is registered; problems are collected."""
        held, learned = (named.held, named.learned) if isinstance(named, DataFile) else ("items", "last")
        path = self.folder / named.path
        if self.allow_missing and not path.exists():
            return None
        if not self._is_there((*loc, "path"), named.path, folder=True):
            return None
        try:
            digest, found = digest_of(path), read_registered(path, held, learned)
        except (OSError, ValueError) as error:
            self.problems.append(LintProblem((*loc, "path"), f"'{named.path}' cannot be read: {error}"))
            return None
        if named.digest is not None and digest != named.digest:
            message = f"'{named.path}' has the digest {digest}, the spec registers {named.digest}"
            self.problems.append(LintProblem((*loc, "digest"), message, _RESTORE))
        problems = found if isinstance(found, list) else self._lines(path, found)
        self.others += _at_most(problems)
        if isinstance(found, list) or problems:
            return None if isinstance(found, list) else found
        if found.turns:
            self.turns.add(".".join(map(str, loc)))
        if found.held == "items":
            self.items[".".join(map(str, loc))] = found.data
        if n is not None and found.rows != n:
            message = f"n is {n}, '{named.path}' holds {found.rows} items"
            self.problems.append(LintProblem(("analysis", "n"), message, f"write n: {found.rows}"))
        return found

    def _lines(self, path: Path, found: Registered) -> list[Problem]:
        return _check_items(path, found.data) if found.held == "items" else []

    def unreadable(self, loc: Loc, named: str) -> list[LintProblem]:
        """Return why a file cannot be read."""
        self._is_there(loc, named, folder=True)
        return self.problems

    def _read(self, loc: Loc, named: str) -> bytes | None:
        try:
            return (self.folder / named).read_bytes() if self._is_there(loc, named) else None
        except (OSError, ValueError) as error:
            self.problems.append(LintProblem(loc, f"'{named}' cannot be read: {error}"))
        return None

    def _is_there(self, loc: Loc, named: str, *, folder: bool = False) -> bool:
        """Say whether a file that the spec names can be read; why not is a problem."""
        path = self.folder / named
        try:
            if not path.exists():
                hint = f"paths start from the spec's folder {self.folder.resolve()}"
                self.problems.append(LintProblem(loc, f"there is no file '{named}'", hint))
            elif not (path.is_file() or (folder and path.is_dir())):
                self.problems.append(LintProblem(loc, f"'{named}' is not a file"))
            elif size_of(path) > MAX_DATA_BYTES:
                self.problems.append(LintProblem(loc, f"'{named}' is larger than {MAX_DATA_BYTES} bytes"))
            else:
                return True
        except (OSError, ValueError) as error:
            self.problems.append(LintProblem(loc, f"'{named}' cannot be read: {error}"))
        return False


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


def _check_items(path: Path, raw: bytes) -> list[Problem]:
    """Return what is wrong with the lines of a file of items."""
    found: list[Problem] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(raw.removesuffix(b"\n").split(b"\n"), 1):
        item = _read_item(line)
        if isinstance(item, Item):
            if item.id in seen:
                message = f"id '{item.id}' is already used on line {seen[item.id]}"
                found.append(Problem(str(path), number, 1, "id", printable(message), "ids are unique"))
            seen.setdefault(item.id, number)
        else:
            found += [Problem(str(path), number, column, *map(printable, said)) for column, *said in item]
    return found


def _at_most(found: list[Problem]) -> list[Problem]:
    """Return the first problems of a file and how many more there are."""
    shown, rest = found[:MAX_DATA_PROBLEMS], found[MAX_DATA_PROBLEMS:]
    if not rest:
        return shown
    told = f"and {len(rest)} more problems from this line on"
    return [*shown, Problem(rest[0].path, rest[0].line, 1, "", told, stands_for=len(rest))]


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
