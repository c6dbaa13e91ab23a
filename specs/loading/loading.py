"""From a file to a registered spec; problems have their line and column, the schema's before the rules'."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from specs.lint.item_rules import unread_turns
from specs.lint.rules import lint
from specs.loading.named_files import NamedFiles, Unconfined, document_of, parse_constitution
from specs.session.constitution import Constitution
from specs.session.defaults import fill
from specs.session.profiles import apply_profile, profile_names
from specs.session.session_spec import ResolvedSpec, SessionSpec
from specs.stages.explain import validate
from specs.system import plugins
from specs.system.digests import digest_bytes
from specs.system.errors import SpecError, UserError
from specs.system.home import HOME
from specs.system.regular_files import read_regular
from specs.system.resources import LauncherName
from specs.system.yaml.problems import LintProblem, Loc, closest
from specs.system.yaml.yaml_positions import Document, UnreadableError, read_yaml

_HINTS: dict[Loc, str] = {
    ("analysis", "baseline"): "name it unless exactly two stages measure the held-out split",
    ("analysis", "treatment"): "name it unless exactly two stages measure the held-out split",
    ("analysis", "minimum_effect"): "the smallest gain that would matter, such as 0.2",
    ("budget",): "jobs on other machines need one: budget: {max_cost_usd: 20, machine_usd_per_hour: 2.5}",
    ("budget", "machine_usd_per_hour"): "what the machine costs you; 0 where it is your own",
}
"""What to write where nothing can be filled in."""
MAX_SPEC_BYTES = 1 << 24
"""The limit of a spec or constitution."""
EXPERIMENT = "experiment.yaml"
"""The spec that a folder holds."""


def load_spec(
    path: Path,
    profile: str | None = None,
    *,
    allow_missing_data: bool = False,
    launcher: LauncherName | None = None,
    unconfined: Unconfined = "never",
) -> ResolvedSpec:
    """Read a session spec and pin everything it names; whether the model exists is not checked here.

    ``profile`` and ``launcher`` replace the values in the spec. With ``allow_missing_data``, the registered digests
    of data files that do not exist are used; files without one are left out. ``unconfined`` is for who runs the spec.

    Raises:
        SpecError: the spec, its constitution or its data are wrong. Holds every problem of the first of these that
            has one: the YAML, the profile, the schema with what a spec leaves out, the rules with the files that the
            spec names.
        UserError: the spec file itself cannot be read.
    """
    document = document_of(path, _read_file(path))
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
    files = NamedFiles(path, allow_missing_data, unconfined)
    spec, constitution, digests = files.read_all(spec)
    spec, task_text = files.task(files.companions(spec))
    spec, scripts = files.scripts(spec)
    spec, reading = files.reading(spec)
    if not files.problems and not files.others:
        files.require_fields(spec, scripts)
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
        reading=reading,
        origin=str(path.resolve().parent),
    )


def spec_error(path: Path, profile: str | None, problem: LintProblem) -> SpecError:
    """Return the error of a problem that was found after loading, with its place in the file.

    Raises:
        SpecError, UserError: the file changed meanwhile, as :func:`load_spec`.
    """
    document = document_of(path, _read_file(path))
    apply_profile(document, profile)
    return document.error(path, [problem])


def used_plugins(spec: SessionSpec) -> dict[str, str]:
    """Return what the spec uses of other distributions, and all checks that are installed, with their identity now.

    Raises:
        PluginFault: files of one cannot be read, or several distributions bring the same.
    """
    named = [plugins.find(group, name) for group, name in _named(spec)]
    points = [
        entry_point
        for entry_point in (*named, *plugins.find_entry_points("peergate.checks"))
        if entry_point is not None
    ]
    return plugins.identities(sorted({plugins.key_of(point) for point in points}))


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


def list_profiles(path: Path) -> tuple[str, ...]:
    """Return the profiles of a spec, none where it is not YAML; raises UserError if the file cannot be read."""
    try:
        return profile_names(read_yaml(_read_file(path)))
    except UnreadableError:
        return ()


def default_profile(path: Path) -> str | None:
    """Return the profile that a spec names for itself, None where it names none or is not YAML."""
    with suppress(UnreadableError):
        data: Any = read_yaml(_read_file(path)).data
        return str(data["profile"]) if isinstance(data, dict) and "profile" in data else None
    return None


def load_constitution(path: Path) -> tuple[Constitution, str]:
    """Return a constitution with its digest; raises SpecError, with every problem, or UserError if it is unreadable."""
    raw = _read_file(path)
    return parse_constitution(path, raw), digest_bytes(raw)


def list_shipped_specs() -> dict[str, Path]:
    """Return the specs that come with Peergate, by name."""
    library = HOME / "specs" / "library"
    return {file.stem: file for file in sorted(library.glob("*.yaml")) if file.stem != "constitution"}


def find_spec(text: str) -> Path:
    """Return the file that a user means: a spec, that of a folder (:data:`EXPERIMENT`), or a shipped one by its name.

    Raises:
        UserError: there is no such spec; with the shipped names.
    """
    path = Path(text)
    known = list_shipped_specs()
    message = f"unknown spec '{text}'"
    try:
        if path.is_file():
            return path
        if path.is_dir():
            if (path / EXPERIMENT).is_file():
                return path / EXPERIMENT
            message = f"there is no {EXPERIMENT} in {'this folder' if text == '.' else repr(text)}"
        elif path.exists():
            message = f"'{text}' is not a file"
    except (OSError, ValueError):  # A name no file can have: too long, or with a NUL character.
        pass
    if text in known:
        return known[text]
    match = closest(path.name.removesuffix(".yaml"), known) if message.startswith("unknown spec") else None
    names = f"shipped specs: {', '.join(known) or 'none'}"
    raise UserError(message, hint=f"did you mean '{match}'? {names}" if match else f"name a spec file; {names}")


def _with_remedies(path: Path, document: Document, problems: list[LintProblem]) -> Iterator[LintProblem]:
    """Add remedies: where a seed is written, and what is wrong with the held-out split or its digest."""
    flag = any(problem.hint == "did you mean 'seed'?" for problem in problems)
    for problem in problems:
        missing = problem.message.endswith("is missing")
        if problem.loc == ("analysis", "seeds") and missing:
            if not flag:
                yield LintProblem(("seed",), "'seed' is missing", "one seed for the analysis and all stages: seed: 7")
        elif problem.loc == ("heldout", "digest") and missing:
            # It is computed from the file, which is missing, or whose path is a separate problem.
            if isinstance(named := document.data["heldout"].get("path"), str):
                yield from NamedFiles(path, False).unreadable(("heldout", "path"), named)
        elif problem.loc == ("heldout", "digest"):
            yield replace(problem, hint="omit it, or let `peergate spec pin` write it")
        elif problem.loc == ("analysis", "n") and missing:
            # Counted from the held-out split, unless that cannot be read, which is a separate problem.
            if not any(other.loc[0] == "heldout" for other in problems):
                yield from NamedFiles(path, False).unreadable(("heldout", "path"), document.data["heldout"]["path"])
        elif missing and problem.loc in _HINTS:
            yield replace(problem, hint=_HINTS[problem.loc])
        else:
            yield problem


def _read_file(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise UserError(f"file '{path}' does not exist" if not path.exists() else f"'{path}' is not a file")
        return read_regular(path, MAX_SPEC_BYTES)
    except (OSError, ValueError) as error:
        raise UserError(f"'{path}' cannot be read: {error}") from error
