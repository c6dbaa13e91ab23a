"""`peergate spec check | show | pin | kinds | schema`."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from sessions.commands.options import DEFAULT_RUNS, Json, Profile, SpecName
from sessions.commands.output import print_json, print_line
from sessions.money.estimate import estimate, require_disk, require_disk_limit
from sessions.plugin_imports import require_importable
from sessions.wiring import require_machine
from specs.errors import Blocked, Problem, SpecError
from specs.session.lint.evaluation_rules import notes
from specs.session.loading import find_spec, list_profiles, load_spec
from specs.session.session_spec import ResolvedSpec, SessionSpec
from specs.stages.registry import STAGE_KINDS, known_names
from training.planning.stage_plans import plans

app = typer.Typer(help="Check and show specs.", no_args_is_help=True)


@app.command("check")
def check(
    spec: SpecName,
    as_json: Json = False,
    profile: Annotated[str | None, typer.Option("--profile", help="Only this profile; every one by default.")] = None,
) -> None:
    """Check a spec and everything it names.

    Lists every problem with its place in the file; of a good spec its cost, and what this machine lacks for it.
    """
    path = find_spec(spec)
    profiles = (profile,) if profile is not None else list_profiles(path) or (None,)
    found: list[Problem] = []
    checked: dict[str | None, ResolvedSpec] = {}
    for one in profiles:
        try:
            resolved = load_spec(path, one)
            require_disk_limit(resolved, path, one)
            checked[one] = resolved
        except SpecError as error:
            found += [problem for problem in error.problems if problem not in found]
    require_importable(*checked.values())
    if as_json:
        told = {"spec": str(path), "ok": not found, "problems": [vars(problem) for problem in found]}
        if not found:

            def by_profile(of: Callable[[ResolvedSpec], Any]) -> dict[str, Any]:
                return {name or "": of(resolved) for name, resolved in checked.items()}

            registered = by_profile(ResolvedSpec.registration)
            told |= {"digests": by_profile(lambda one: dict(one.data_digests))}
            told |= {"registrations": registered} if None not in checked else {"registration": registered[""]}
            told |= {"lacking_here": by_profile(_lacking), "notes": by_profile(lambda one: list(notes(one.spec)))}
            # Cost, hours and memory, as far as they are known.
            memory = by_profile(lambda one: [plan._asdict() for plan in plans(one.spec, Path(one.origin))])
            costs = by_profile(lambda one: estimate(one).as_json())
            told |= {"planned": {name: {"cost": costs[name], "memory": memory[name]} for name in costs}}
        print_json(told)
        if found:
            raise SystemExit(int(SpecError.exit_code))
    elif found:
        raise SpecError(found)
    else:
        for name, resolved in checked.items():
            print_line(f"{path}{'' if name is None else f', profile {name}'}: ok")
            _print_spec(resolved)
            if profile is None and (lacking := _lacking(resolved)):
                print_line(f"  not on this machine: {lacking}")
    if profile is not None:
        require_machine(checked[profile].spec)
        require_disk(checked[profile], DEFAULT_RUNS)


@app.command("kinds")
def kinds(as_json: Json = False) -> None:
    """List every stage kind: what it reads, what it leaves, its metrics and who brings it."""
    known = [STAGE_KINDS[name] for name in known_names()]
    if as_json:
        told = {
            one.name: {
                "distribution": one.plugin or "peergate",
                "inputs": dict(one.inputs),
                "outputs": dict(one.outputs),
                "metrics": [metric.id for metric in one.metrics],
            }
            for one in known
        }
        print_json({"kinds": told})
        return
    for one in known:
        print_line(f"{one.name} ({one.plugin or 'peergate'})")
        print_line(f"  reads: {', '.join(one.inputs) or 'what the stage names'}; leaves: {', '.join(one.outputs)}")
        if one.metrics:
            print_line(f"  metrics: {', '.join(metric.id for metric in one.metrics)}")


def _print_spec(resolved: ResolvedSpec) -> None:
    print_line(f"  stages: {', '.join(stage.name for stage in resolved.spec.stages)}")
    print_line(f"  registration: {resolved.registration()}")
    named = {"heldout": resolved.spec.heldout, **resolved.spec.data}
    for name, digest in sorted(resolved.data_digests.items()):
        print_line(f"  {named[name].path}: {digest}")
    told = [f"note: {line}" for line in notes(resolved.spec)]
    planned = [f"{plan.stage}: {plan.told}" for plan in plans(resolved.spec, Path(resolved.origin))]
    for line in (*told, *estimate(resolved).lines(), *planned):
        print_line(f"  {line}")


@app.command("pin")
def pin_files(spec: Annotated[Path, typer.Argument(help="The spec file to write to.")], as_json: Json = False) -> None:
    """Write the digests of the held-out split and of all data files into a spec; everything else of it stays.

    Without this, `start` registers the files as they are then. With it, a spec is refused as soon as a file differs.
    """
    from specs.session.pins import pin

    pinned = pin(spec)
    if as_json:
        print_json({"spec": str(spec), "pinned": [one._asdict() for one in pinned]})
        return
    for one in pinned:
        done = "as it was" if one.before == one.digest else f"before: {one.before}" if one.before else "new"
        print_line(f"{one.where}: {one.path} {one.digest} ({done})")


@app.command("schema")
def schema() -> None:
    """Print the JSON Schema of a spec, with the stage kinds that are installed.

    `peergate spec schema > spec.schema.json`, and `# yaml-language-server: $schema=spec.schema.json` on a spec's first
    line, let an editor complete and check it. Rules that join several values are only in `spec check`.
    """
    from specs.schemas import schema_text

    for line in schema_text(SessionSpec).splitlines():
        print_line(line)


def _lacking(resolved: ResolvedSpec) -> str:
    """Return what this machine lacks for the spec; empty if it can start here."""
    try:
        require_machine(resolved.spec)
        require_disk(resolved, DEFAULT_RUNS)
    except Blocked as error:
        return f"{error.where}: {error.message}"
    return ""


@app.command("show")
def show(spec: SpecName, as_json: Json = False, profile: Profile = None) -> None:
    """Show a spec with everything resolved, and its registration digest."""
    resolved = load_spec(find_spec(spec), profile)
    data = resolved.model_dump(mode="json")
    if as_json:
        print_json({"registration": resolved.registration(), "resolved": data})
        return
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # pyright: ignore[reportAttributeAccessIssue]
    print_line(f"# registration: {resolved.registration()}")
    text = io.StringIO()
    yaml.dump(data, text)
    for line in text.getvalue().split("\n")[:-1]:
        print_line(line)
