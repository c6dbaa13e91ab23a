"""Profiles: one experiment for several machines. A profile changes values of a spec before it is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specs.stages.registry import names_where
from specs.system.yaml.problems import LintProblem, Loc, suggest
from specs.system.yaml.yaml_positions import Document, YamlList, YamlMapping

FIXED = ("schema_version", "name", "task", "profile", "profiles")
"""What makes it this experiment and not another one."""
FIXED_IN_STAGES = ("name", "kind", "inputs")


def profile_names(document: Document) -> tuple[str, ...]:
    """Return the profiles a spec has, in their order."""
    profiles: Any = document.data.get("profiles") if isinstance(document.data, dict) else None
    return tuple(map(str, profiles)) if isinstance(profiles, dict) else ()


def apply_profile(document: Document, wanted: str | None) -> list[LintProblem]:
    """Put the values of a profile into a spec, in place; returns what is wrong with that.

    Mappings are merged, everything else is replaced. ``wanted`` replaces the profile that the spec names. A resolved
    spec has no ``profiles`` and may carry the name of the profile it was made with.
    """
    top: YamlMapping = document.data
    own = top.get("profile")
    if "profiles" not in top:
        if wanted is None or wanted == own:
            return []
        return [LintProblem((), f"the spec has no profiles, '{wanted}' was asked for")]
    profiles = top["profiles"]
    if not isinstance(profiles, YamlMapping) or not profiles:
        return [LintProblem(("profiles",), "must be a mapping of names to what each changes")]
    chosen = wanted if wanted is not None else own
    names = ", ".join(map(str, profiles))
    if chosen is None:
        hint = f"write profile: NAME, or give --profile NAME; there are {names}"
        return [LintProblem(("profiles",), "no profile is chosen", hint)]
    if not isinstance(chosen, str) or chosen not in profiles:
        where: Loc = () if wanted is not None else ("profile",)
        return [LintProblem(where, f"unknown profile '{chosen}'", suggest(str(chosen), map(str, profiles)))]
    top["profile"] = chosen
    problems = list(_whole(top, ("profiles", chosen), profiles[chosen]))
    if not problems:
        del top["profiles"]
    return problems


def _whole(top: YamlMapping, here: Loc, changes: Any) -> Iterator[LintProblem]:
    """Merge what a profile changes."""
    if not isinstance(changes, YamlMapping):
        yield LintProblem(here, "must be a mapping of what it changes")
        return
    for key, value in changes.items():
        if key in FIXED:
            yield LintProblem((*here, key), f"a profile cannot change '{key}'", "that is another experiment")
        elif key == "stages":
            yield from _stages(top, (*here, key), value)
        else:
            _merge(key, changes, top)


def _stages(top: YamlMapping, here: Loc, changes: Any) -> Iterator[LintProblem]:
    if not isinstance(changes, YamlMapping):
        yield LintProblem(here, "must be a mapping of stage names to what changes in each")
        return
    stages: Any = top.get("stages")
    listed = stages if isinstance(stages, YamlList) else YamlList()
    places = {str(value.get("name")): number for number, value in enumerate(listed) if isinstance(value, YamlMapping)}
    left_out: list[int] = []
    measuring = names_where("only_measures")  # Nothing is made or trained by these.
    for name, values in changes.items():
        where = (*here, name)
        if name not in places:
            yield LintProblem(where, f"unknown stage '{name}'", suggest(name, places))
        elif values is None and str(listed[places[name]].get("kind")) in measuring:
            left_out.append(places[name])
        elif values is None:
            message = f"a profile cannot leave out a stage of kind {listed[places[name]].get('kind')}"
            yield LintProblem(where, message, f"that is another experiment; it can: {', '.join(measuring)}")
        elif not isinstance(values, YamlMapping):
            yield LintProblem(where, "must be a mapping of what changes in this stage")
        else:
            for key in values:
                if key in FIXED_IN_STAGES:
                    message = f"a profile cannot change the '{key}' of a stage"
                    yield LintProblem((*where, key), message, "that is another experiment")
                else:
                    _merge(key, values, listed[places[name]])
    for number in sorted(left_out, reverse=True):
        del listed[number], listed.places[number]


def _merge(key: str, changes: YamlMapping, into: YamlMapping) -> None:
    value, there = changes[key], into.get(key)
    if isinstance(value, YamlMapping) and isinstance(there, YamlMapping):
        for inner in value:
            _merge(inner, value, there)
    else:
        into.take(key, changes)
