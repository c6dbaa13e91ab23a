"""The code that metrics, checks, packets and decisions depend on, as a digest: whatever their imports reach.

A list of file names by hand missed a third of it. Imports inside functions count, those only for types do not. What no
import shows has to be named here: data files that reached code reads, and the plug-ins that a spec uses.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path

from specs.session.design import ResolvedDesign
from specs.stages.registry import built_in_kinds
from specs.system import plugins
from specs.system.confinement import task_file
from specs.system.confinement.verifier_command import SERVER
from specs.system.digests import digest_file, digest_value
from specs.system.home import HOME

PACKAGES = ("reviews", "training", "specs")
"""The packages that a judge may import."""


def judge_modules() -> list[str]:
    """Return the modules with the judges of Peergate's own kinds, and those next to them, which hold their checks."""
    packages = dict.fromkeys(kind.judge.rpartition(".")[0] for kind in built_in_kinds())
    files = ((package, sorted(HOME.joinpath(*package.split(".")).glob("[!_]*.py"))) for package in packages)
    return [f"{package}.{path.stem}" for package, paths in files for path in paths]


ROOTS = (
    *judge_modules(),
    "reviews.gate.measurer",
    "reviews.gate.check_list",
    "reviews.gate.packet",
    "reviews.gate.packet_derivation",
    "reviews.gate.decide",
    "reviews.gate.gate_decision",
    "reviews.gate.loosening_check",
    "reviews.audit.metric_lines",
    "reviews.evidence.readable_evidence",
    SERVER,
)
DATA = ("training/rules/prompts/*.yaml",)
"""Files that reached code reads: the questions that a critic's verdicts are recomputed with."""


def measuring_code(resolved: ResolvedDesign | None = None) -> str:
    """Return the digest of the code that metrics, checks, packets and decisions of a spec depend on.

    A plug-in that was registered with the spec counts with its name, version and files, and a task next to the spec
    with its file, as these are now. Without a spec it is Peergate's own code.
    """
    return _digest(frozenset(measuring_files(resolved).items()))


@lru_cache(4)
def _digest(files: frozenset[tuple[str, str]]) -> str:
    return digest_value(dict(files))


def measuring_files(resolved: ResolvedDesign | None = None) -> dict[str, str]:
    """Return the digest of each file of that code, by path, and the identity of each plug-in, by what it brings."""
    return _own_code() if resolved is None else _own_code() | plugins.identities(resolved.plugins) | _task(resolved)


def _task(resolved: ResolvedDesign) -> dict[str, str]:
    """Return the digest of the task file of a spec, as it is now."""
    if not task_file.is_file(resolved.spec.task):
        return {}
    path = task_file.path_of(resolved.spec.task)
    try:
        digest = digest_file(resolved.path(path))
    except OSError:
        digest = "missing"
    return {f"task {path}": digest}


@cache
def _own_code() -> dict[str, str]:
    """Return the digest of each file, read once: a process keeps what it loaded, whatever is written afterwards."""
    files = [*import_closure(HOME, ROOTS), *(path for pattern in DATA for path in HOME.glob(pattern))]
    return {path.relative_to(HOME).as_posix(): digest_file(path) for path in sorted(files)}


def import_closure(home: Path, roots: Iterable[str]) -> set[Path]:
    """Return the files of Peergate that importing ``roots`` can reach.

    The ``__init__.py`` of a package counts if it holds more than its docstring.

    Raises:
        ModuleNotFoundError: a root is missing: a digest without it would seem to cover it.
    """
    waiting, reached = list(dict.fromkeys(roots)), list[Path]()
    for name in waiting:
        if _file(home, name) is None:
            raise ModuleNotFoundError(f"'{name}' is registered as measuring code and is not in {home}", name=name)
    seen_texts = set(waiting)
    while waiting:
        name = waiting.pop()
        path = _file(home, name)
        if path is None:
            continue
        package, _, _ = name.rpartition(".")
        is_package, source = path.name == "__init__.py", path.read_text(encoding="utf-8")
        if not is_package or _holds_code(ast.parse(source, str(path))):
            reached.append(path)
        texts = {package, *_iterate_imports(source, name if is_package else package)} - seen_texts
        seen_texts |= texts
        waiting += texts
    return set(reached)


def _file(home: Path, name: str) -> Path | None:
    if name.partition(".")[0] not in PACKAGES:
        return None
    stem = home.joinpath(*name.split("."))
    return next((path for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.is_file()), None)


def _holds_code(module: ast.Module) -> bool:
    """Return whether a module holds more than a docstring."""
    return len(module.body) > (ast.get_docstring(module, clean=False) is not None)


_IMPORT = re.compile(
    r"^(?P<indent>[ ]*)(?:if (?:typing\.)?TYPE_CHECKING:(?P<types>)"
    r"|from (?P<dots>\.*)(?P<source>[\w.]*) import (?:\((?P<block>[^)]*)\)|(?P<names>[^\n]+))"
    r"|import (?P<modules>[^\n]+)"
    r"|(?=\S))",
    re.MULTILINE,
)
"""A statement that imports or names types only, or the indent of any other line.

Parsing each file to a syntax tree takes ten times as long, in every process that judges. The formatter leaves imports
in no other form.
"""


def _iterate_imports(source: str, package: str) -> Iterator[str]:
    """Yield every name that could be a module: of ``from a import b`` both ``a`` and ``a.b``."""
    types: int | None = None
    for match in _IMPORT.finditer(source):
        indent = len(match["indent"])
        if types is not None and indent > types:
            continue
        types = indent if match["types"] is not None else None
        if match["modules"]:
            yield from _list_names(match["modules"])
        elif listed := match["block"] or match["names"]:
            level = len(match["dots"])
            parts = package.split(".")[: len(package.split(".")) - level + 1] if level else []
            module = ".".join([*parts, *([match["source"]] if match["source"] else [])])
            yield module
            yield from (f"{module}.{name}" for name in _list_names(listed))


def _list_names(text: str) -> list[str]:
    """Return the names between commas, without comments and what they are called here."""
    return re.findall(r"(?:^|,)\s*([\w.]+)", re.sub(r"#[^\n]*", "", text))
