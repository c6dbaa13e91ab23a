"""What a spec may leave out, filled in before it is read: a registration holds every value, however it was written."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from specs.data.columns import Selection
from specs.data.registered import read_registered
from specs.data.tables import digest_of
from specs.stages.explain import show
from specs.stages.registry import STAGE_KINDS
from specs.system.yaml.problems import LintProblem, Loc
from specs.system.yaml.yaml_positions import Document, YamlList, YamlMapping

MAX_SEED = 2**31 - 1
ALPHA = 0.05
BUDGET: dict[str, float] = {"max_cost_usd": 5, "machine_usd_per_hour": 0, "max_hours": 12}
"""One night on a machine of one's own: only models that are asked cost money."""
MAY_BE_LEFT_OUT: dict[str, dict[str, str]] = {
    "SessionSpec": {"budget": "its defaults, where jobs run on this machine"},
    "Analysis": {
        "alpha": f"`{ALPHA}`",
        "seeds": "the `seed` at the top",
        "n": "the items of `heldout`",
        "baseline": "the first of two stages that measure `heldout`",
        "treatment": "the second of them",
    },
    "Budget": {name: f"`{value:g}`" for name, value in BUDGET.items()}
    | {"machine_usd_per_hour": "`0`, where jobs run on this machine"},
    "HeldOut": {"digest": "the file's as it is at `start`"},
}
"""Per contract: what it requires and :func:`fill` adds, in words."""


def fill(document: Document, folder: Path) -> list[LintProblem]:
    """Put what a spec leaves out into it, in place; returns what is wrong with that.

    Files are named from ``folder``. Values of the wrong form are left as they are: the schema reports them.
    """
    _fill_digest(document, folder)
    _fill_budget(document)
    _fill_analysis(document, folder)
    return _fill_seed(document)


def _fill_digest(document: Document, folder: Path) -> None:
    """Register the held-out split as its file is now; a file that cannot be read is reported by who reads it."""
    heldout = document.data.get("heldout")
    if not isinstance(heldout, YamlMapping) or "digest" in heldout or not isinstance(path := heldout.get("path"), str):
        return
    with suppress(OSError, ValueError):
        heldout["digest"], heldout.places["digest"] = digest_of(folder / path), heldout.places["path"]


def _fill_budget(document: Document) -> None:
    """Give a session on a machine of one's own its budget; what a rented machine costs, only its user knows."""
    top: YamlMapping = document.data
    stages: Any = top.get("stages")
    places = [
        top,
        *(stage for stage in (stages if isinstance(stages, YamlList) else ()) if isinstance(stage, YamlMapping)),
    ]
    own = all(place.get("launcher", "local") == "local" for place in places)
    budget = top.get("budget", YamlMapping())
    if not isinstance(budget, YamlMapping):
        return
    place = top.places["budget"] if "budget" in top else (document.top, document.top)
    for name, value in BUDGET.items():
        if name not in budget and (own or name != "machine_usd_per_hour"):
            budget[name], budget.places[name] = value, place
    if own or "budget" in top:
        top["budget"], top.places["budget"] = budget, place


def _fill_analysis(document: Document, folder: Path) -> None:
    """Test at 5 %, count the held-out items, and compare the two stages that measure them if there are just two."""
    analysis = document.data.get("analysis")
    if not isinstance(analysis, YamlMapping):
        return
    place = document.data.places["analysis"]
    if "alpha" not in analysis:
        analysis["alpha"], analysis.places["alpha"] = ALPHA, place
    if "n" not in analysis and (n := _items(document.data.get("heldout"), folder)) is not None:
        analysis["n"], analysis.places["n"] = n, place
    stages: Any = document.data.get("stages")
    arms = [stage["name"] for stage in (stages if isinstance(stages, YamlList) else ()) if _is_arm(stage)]
    if "baseline" not in analysis and "treatment" not in analysis and len(arms) == 2:
        for role, name in zip(("baseline", "treatment"), arms, strict=True):
            analysis[role], analysis.places[role] = name, place


def _items(heldout: object, folder: Path) -> int | None:
    """Return how many items the held-out split holds; 1 where its rows have problems, which its reader reports."""
    if not isinstance(heldout, YamlMapping) or not isinstance(path := heldout.get("path"), str):
        return None
    # What the schema says of wrong values is said elsewhere.
    with suppress(OSError, ValueError, TypeError, AttributeError):
        columns, drop = heldout.get("columns"), heldout.get("drop")
        selection = Selection(
            columns if isinstance(columns, dict) else {}, tuple(drop) if isinstance(drop, list) else ()
        )
        problems = read_registered(folder / path, "items", selection=selection)
        return 1 if isinstance(problems, list) else problems.rows
    return None


def _is_arm(stage: object) -> bool:
    if not isinstance(stage, YamlMapping) or not isinstance(stage.get("name"), str) or "heldout" not in _read_by(stage):
        return False
    kind = stage.get("kind")
    return isinstance(kind, str) and kind in STAGE_KINDS and STAGE_KINDS[kind].arm is not None


def _read_by(stage: YamlMapping) -> list[Any]:
    inputs = stage.get("inputs")
    return list(inputs.values()) if isinstance(inputs, YamlMapping) else []


def _fill_seed(document: Document) -> list[LintProblem]:
    """Hand the seed at the top of a spec down to its analysis and its stages."""
    top: YamlMapping = document.data
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
    if isinstance(analysis, YamlMapping):
        if "seeds" not in analysis:
            analysis["seeds"], analysis.places["seeds"] = [seed], places
        elif isinstance(analysis["seeds"], list) and analysis["seeds"] != [seed] and not invalid:
            problems.append(_other(("analysis", "seeds"), analysis["seeds"], seed))
    stages: Any = top.get("stages")
    for index, stage in enumerate(stages if isinstance(stages, YamlList) else ()):
        if not isinstance(stage, YamlMapping):
            continue
        if "parameters" not in stage:
            stage["parameters"], stage.places["parameters"] = (
                YamlMapping(),
                (stages.places[index], stages.places[index]),
            )
        parameters = stage["parameters"]
        if not isinstance(parameters, YamlMapping):
            continue
        if "seed" not in parameters:
            parameters["seed"], parameters.places["seed"] = seed, places
        elif parameters["seed"] != seed and not invalid:
            problems.append(_other(("stages", index, "parameters", "seed"), parameters["seed"], seed))
    return problems


def _other(loc: Loc, result: Any, seed: int) -> LintProblem:
    text = f"these are {result}" if isinstance(result, list) else f"this is {show(result)}"
    return LintProblem(loc, f"{text}, the spec's seed is {seed}", "remove it: analysis and stages inherit the seed")
