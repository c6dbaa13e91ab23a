"""What a spec may leave out, filled in before it is read: a registration holds every value, however it was written."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from specs.data.tables import digest_of
from specs.session.explain import show
from specs.session.problems import LintProblem, Loc
from specs.session.yaml_positions import Document, Keyed, Listed

MAX_SEED = 2**31 - 1
MAY_BE_LEFT_OUT: dict[str, tuple[str, ...]] = {"Analysis": ("seeds",), "HeldOut": ("digest",)}
"""Per contract (the spec itself: empty): what it requires and :func:`fill` adds."""


def fill(document: Document, folder: Path) -> list[LintProblem]:
    """Put what a spec leaves out into it, in place; returns what is wrong with that.

    Files are named from ``folder``. Values of the wrong form are left as they are: the schema reports them.
    """
    _fill_digest(document, folder)
    return _fill_seed(document)


def _fill_digest(document: Document, folder: Path) -> None:
    """Register the held-out split as its file is now; a file that cannot be read is reported by who reads it."""
    heldout = document.data.get("heldout")
    if not isinstance(heldout, Keyed) or "digest" in heldout or not isinstance(path := heldout.get("path"), str):
        return
    with suppress(OSError, ValueError):
        heldout["digest"], heldout.places["digest"] = digest_of(folder / path), heldout.places["path"]


def _fill_seed(document: Document) -> list[LintProblem]:
    """Hand the seed at the top of a spec down to its analysis and its stages."""
    top: Keyed = document.data
    if "seed" not in top:
        return []
    seed, places = top.pop("seed"), top.places["seed"]
    problems: list[LintProblem] = []
    invalid = isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED
    if invalid:
        message = f"seed must be a whole number from 0 to {MAX_SEED}, got {show(seed)}"
        problems.append(LintProblem(("seed",), message, place=places[1]))
        # Any seed, so that the schema does not miss one as well.
        seed = 0
    analysis = top.get("analysis")
    if isinstance(analysis, Keyed):
        if "seeds" not in analysis:
            analysis["seeds"], analysis.places["seeds"] = [seed], places
        elif isinstance(analysis["seeds"], list) and analysis["seeds"] != [seed] and not invalid:
            problems.append(_other(("analysis", "seeds"), analysis["seeds"], seed))
    stages: Any = top.get("stages")
    for index, stage in enumerate(stages if isinstance(stages, Listed) else ()):
        if not isinstance(stage, Keyed):
            continue
        if "parameters" not in stage:
            stage["parameters"], stage.places["parameters"] = Keyed(), (stages.places[index], stages.places[index])
        parameters = stage["parameters"]
        if not isinstance(parameters, Keyed):
            continue
        if "seed" not in parameters:
            parameters["seed"], parameters.places["seed"] = seed, places
        elif parameters["seed"] != seed and not invalid:
            problems.append(_other(("stages", index, "parameters", "seed"), parameters["seed"], seed))
    return problems


def _other(loc: Loc, found: Any, seed: int) -> LintProblem:
    said = f"these are {found}" if isinstance(found, list) else f"this is {show(found)}"
    return LintProblem(loc, f"{said}, the spec's seed is {seed}", "remove it: analysis and stages inherit the seed")
