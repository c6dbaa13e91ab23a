"""`peergate spec check | show`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from sessions.commands.output import print_json
from sessions.wiring import require_machine
from specs.errors import Blocked, Problem, SpecError
from specs.loading import find_spec, list_profiles, load_spec
from specs.machines import attempt_usd, held_hours
from specs.session import ResolvedSpec
from specs.stages import DpoStage, SftStage


def check(spec: str, as_json: bool, profile: str | None = None) -> None:
    """Check a spec, each of its profiles unless one is named; problems end with exit code 2.

    Of each is told what this machine lacks for it.

    Raises:
        SpecError: with every problem.
        Blocked: this machine cannot carry out the profile that was named.
    """
    path = find_spec(spec)
    profiles = (profile,) if profile is not None else list_profiles(path) or (None,)
    found: list[Problem] = []
    checked: dict[str | None, ResolvedSpec] = {}
    for one in profiles:
        try:
            checked[one] = load_spec(path, one)
        except SpecError as error:
            found += [problem for problem in error.problems if problem not in found]
    if as_json:
        problems = [vars(problem) for problem in found]
        registered = {name or "": resolved.registration() for name, resolved in checked.items()}
        told = {"spec": str(path), "ok": not found, "problems": problems}
        if not found:
            told |= {"registrations": registered} if None not in checked else {"registration": registered[""]}
            told |= {"lacking_here": {name or "": _lacking(resolved) for name, resolved in checked.items()}}
        print_json(told)
        if found:
            raise SystemExit(int(SpecError.exit_code))
        if profile is not None:
            require_machine(checked[profile].spec)
        return
    if found:
        raise SpecError(found)
    for name, resolved in checked.items():
        of = "" if name is None else f", profile {name}"
        stages = ", ".join(stage.name for stage in resolved.spec.stages)
        print(f"{path}{of}: ok\n  stages: {stages}\n  registration: {resolved.registration()}")
        for line in (_cost(resolved), *_plans(resolved, path)):
            print(line)
        if profile is None and (lacking := _lacking(resolved)):
            print(f"  not on this machine: {lacking}")
    if profile is not None:
        require_machine(checked[profile].spec)


def _lacking(resolved: ResolvedSpec) -> str:
    """Return what this machine lacks for the spec; empty when it would be started here."""
    try:
        require_machine(resolved.spec)
    except Blocked as error:
        return f"{error.where}: {error.message}"
    return ""


def _cost(resolved: ResolvedSpec) -> str:
    """Return what one attempt of each stage may take at most: the limits, not a forecast."""
    spec = resolved.spec
    hours = sum(held_hours(stage) for stage in spec.stages)
    usd = sum(attempt_usd(spec.budget, stage) for stage in spec.stages)
    return f"  at most, an attempt of each stage: {hours:.1f} h, {usd:.2f} of {spec.budget.max_cost_usd:.2f} USD"


def _plans(resolved: ResolvedSpec, path: Path) -> Iterator[str]:
    """Yield the memory plan of each training stage, where the size of the model is known without loading it."""
    from training.optimise.plan import told
    from training.optimise.shapes import shape_of

    shape = shape_of(resolved.spec.model.source, path.parent)
    for stage in resolved.spec.stages:
        if shape is not None and isinstance(stage, SftStage | DpoStage):
            yield f"  {stage.name}: {told(shape, stage.parameters)}"


def show(spec: str, as_json: bool, profile: str | None = None) -> None:
    """Show the resolved spec."""
    resolved = load_spec(find_spec(spec), profile)
    data = resolved.model_dump(mode="json")
    if as_json:
        print_json({"registration": resolved.registration(), "resolved": data})
        return
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # pyright: ignore[reportAttributeAccessIssue]
    print(f"# registration: {resolved.registration()}")
    yaml.dump(data, sys.stdout)
