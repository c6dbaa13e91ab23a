"""`peergate spec check | show | sign | pin | kinds | schema`."""

from __future__ import annotations

import getpass
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from sessions.commands.contract_fields import docstring, fields_of, nested_contracts
from sessions.commands.lazy_group import CommandGroup
from sessions.commands.options import DEFAULT_RUNS, HERE, By, Json, Profile, Runs, SpecName
from sessions.commands.output import print_json, print_line
from sessions.run.money.estimate import estimate
from sessions.run.signed_specs import keep_signature, needs_signature, trust_spec
from specs.lint.evaluation_rules import notes
from specs.loading.loading import default_profile, find_spec, list_profiles, load_spec
from specs.loading.named_files import Unconfined
from specs.session.session_spec import ResolvedSpec, SessionSpec
from specs.session.thresholds import Thresholds
from specs.stages.base.kind import StageKind
from specs.stages.base.metric import MetricDefinition
from specs.stages.recipes.script_file import digest_of, path_of
from specs.stages.registry import STAGE_KINDS, known_names
from specs.system.errors import PeergateError, PluginFault, Problem, SpecError, UserError
from specs.system.vendors.parties import BuilderSpec, ReviewerSpec
from specs.system.yaml.problems import format_loc
from specs.system.yaml.yaml_positions import dump_yaml
from specs.trainers.trainer_file import notes_of
from training.planning.data_fit import DataFitFault
from training.planning.stage_plans import plans

_Fits = dict[str | None, list[DataFitFault]]

app = typer.Typer(cls=CommandGroup, help="Check and show specs.", no_args_is_help=True)
_PLAN = textwrap.TextWrapper(100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
"""A plan's lines, which have many figures; paths stay whole."""
_TEXT = textwrap.TextWrapper(100, initial_indent="  ", subsequent_indent="  ")
_DETAIL = textwrap.TextWrapper(100, initial_indent="    ", subsequent_indent="    ")


@app.command("check")
def check(
    spec: SpecName = HERE,
    as_json: Json = False,
    profile: Annotated[str | None, typer.Option("--profile", help="Only this profile; all by default.")] = None,
    unconfined: Annotated[
        bool, typer.Option("--unconfined", help="Honour `verifier: {sandbox: false}`, as `start` does.")
    ] = False,
) -> None:
    """Print what `start` would report: every problem of a spec, its cost, and the decision of the design gate.

    The exit code is that of `start` up to there. It works offline: only the checklist reviews. If a
    spec has several profiles, only the chosen one has to fit this machine. A verifier runs without a sandbox only with
    --unconfined, or if you already started or signed the spec that way.
    """
    path = find_spec(spec)
    profiles = (profile,) if profile is not None else list_profiles(path) or (None,)
    honours = "named" if unconfined and not needs_signature(path) else "trusted"
    checked, refused, fits = _load_profiles(path, profiles, as_json, honours)
    # Slow: the checks of the gate.
    from sessions.runtime.preflight import design_forecast, machine_warnings

    gates = {name: design_forecast(resolved_spec) for name, resolved_spec in checked.items()}
    here = refused.get(profile or default_profile(path)) if refused else None
    code = int(here.exit_code if here else max(design_forecast.exit_code for design_forecast in gates.values()))
    lacking = {name or "": _in_words(error) for name, error in refused.items()}
    if as_json:
        design = {name or "": design_forecast.as_json() for name, design_forecast in gates.items()}
        message = {"spec": str(path), "ok": not code, "problems": [], **_as_json(checked)}
        print_json(message | {"lacking_here": lacking, "design": design})
    else:
        for name, resolved in checked.items():
            starts = not (gates[name].exit_code or lacking[name or ""])
            message = "ok" if starts else "no problem in the file"
            print_line(f"{path}{'' if name is None else f', profile {name}'}: {message}")
            refusal = f"not on this machine: {lacking[name or '']}" if lacking[name or ""] else ""
            fit = [
                f"{format_loc(call_fault.loc)}: {call_fault.message} ({call_fault.hint})"
                for call_fault in fits.get(name, ())
                if not call_fault.closing
            ]
            warnings = machine_warnings(resolved)
            for line in (*_spec_lines(resolved), *warnings, *fit, *gates[name].lines(), *filter(None, [refusal])):
                print_line(f"  {line}")
    for resolved in checked.values() if not needs_signature(path) else ():
        trust_spec(resolved, sandbox=True)
    if here:
        raise here
    if code:
        raise SystemExit(code)


def _load_profiles(
    path: Path, profiles: tuple[str | None, ...], as_json: bool, unconfined: Unconfined
) -> tuple[dict[str | None, ResolvedSpec], dict[str | None, PeergateError | None], _Fits]:
    """Return the spec by profile, for which of them `start` is refused here, and what of its rows does not fit.

    Raises:
        SpecError: with every problem; as JSON they are printed, and the command ends.
        PluginFault: what the spec uses of other distributions cannot be imported.
    """
    from sessions.runtime.preflight import data_fit, require_startable

    problems: list[Problem] = []
    checked: dict[str | None, ResolvedSpec] = {}
    refused: dict[str | None, PeergateError] = {}
    fits: _Fits = {}
    for profile in profiles:
        try:
            checked[profile] = load_spec(path, profile, unconfined=unconfined)
            fits[profile] = data_fit(checked[profile])
            require_startable(checked[profile], path, profile, DEFAULT_RUNS, fits[profile])
        except SpecError as error:
            problems += [problem for problem in error.problems if problem not in problems]
        except PluginFault:
            raise
        except PeergateError as error:
            if profile not in checked:
                raise
            refused[profile] = error
    if problems and as_json:
        print_json({"spec": str(path), "ok": False, "problems": [vars(problem) for problem in problems]})
        raise SystemExit(int(SpecError.exit_code))
    if problems:
        raise SpecError(problems)
    return checked, {text: refused.get(text) for text in checked}, fits


def _in_words(error: PeergateError | None) -> str:
    """Return what this machine lacks for a spec; empty if it can start here."""
    return "" if error is None else f"{error.where}: {error.message}" if error.where else error.message


def _as_json(checked: dict[str | None, ResolvedSpec]) -> dict[str, Any]:
    """Return digests, registrations, notes and plans: cost, hours and memory as far as they are known."""

    def by_profile(of: Callable[[ResolvedSpec], Any]) -> dict[str, Any]:
        return {name or "": of(resolved) for name, resolved in checked.items()}

    registered = by_profile(ResolvedSpec.registration)
    memory = by_profile(
        lambda resolved_spec: [plan._asdict() for plan in plans(resolved_spec.spec, Path(resolved_spec.origin))]
    )
    costs = by_profile(lambda resolved_spec: estimate(resolved_spec).as_json())
    return {
        "digests": by_profile(lambda resolved_spec: dict(resolved_spec.data_digests)),
        **({"registrations": registered} if None not in checked else {"registration": registered[""]}),
        "learning_curves": by_profile(_dump_curve),
        "notes": by_profile(lambda resolved_spec: list(notes(resolved_spec.spec))),
        "data_notes": by_profile(
            lambda resolved_spec: {name: list(data_note) for name, data_note in resolved_spec.data_notes().items()}
        ),
        "planned": {name: {"cost": costs[name], "memory": memory[name]} for name in costs},
    }


def _dump_curve(resolved: ResolvedSpec) -> dict[str, Any] | None:
    """Return the learning curve that will be fitted at the treatment's gate; None if none is registered."""
    curve = resolved.spec.analysis.learning_curve
    return curve.model_dump(mode="json") if curve else None


@app.command("kinds")
def kinds(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help="Only this kind, with every parameter and metric.", show_default="all"),
    ] = None,
    as_json: Json = False,
) -> None:
    """List every stage kind: its inputs, outputs and metrics, and the distribution that provides it."""
    if kind is not None and kind not in known_names():
        raise UserError(f"unknown stage kind '{kind}'", hint="`peergate spec kinds` lists all kinds")
    listed = [STAGE_KINDS[name] for name in (known_names() if kind is None else (kind,))]
    if as_json:
        print_json({"kinds": {entry.name: _kind_facts(entry, detailed=kind is not None) for entry in listed}})
        return
    for entry in listed:
        for line in _kind_lines(entry, detailed=kind is not None):
            print_line(line)


def _kind_facts(kind: StageKind, *, detailed: bool) -> dict[str, Any]:
    """Return what a kind declares, as JSON."""
    facts: dict[str, Any] = {
        "distribution": kind.plugin or "peergate",
        "inputs": dict(kind.inputs),
        "outputs": dict(kind.outputs),
        "metrics": [metric.id for metric in kind.metrics],
    }
    if detailed:
        facts["parameters"] = [field._asdict() for field in fields_of(kind.parameters)]
        fields = set(MetricDefinition.model_fields)
        facts["definitions"] = [metric.model_dump(mode="json", include=fields) for metric in kind.metrics]
    return facts


def _kind_lines(kind: StageKind, *, detailed: bool) -> Iterator[str]:
    """Yield what a kind declares, in words."""
    yield f"{kind.name} ({kind.plugin or 'peergate'})"
    yield f"  reads: {', '.join(kind.inputs) or 'what the stage names'}; leaves: {', '.join(kind.outputs)}"
    if not detailed:
        if kind.metrics:
            yield f"  metrics: {', '.join(metric.id for metric in kind.metrics)}"
        return
    yield from _TEXT.wrap(docstring(kind.parameters).replace("\n\n", " "))
    nested = nested_contracts([kind.parameters], lambda _: True)
    for name, contract in {"parameters": kind.parameters, **dict(sorted(nested.items()))}.items():
        yield from ("", f"{name}:")
        for field in fields_of(contract):
            default = f"default {field.default}" if field.default else "required"
            yield f"  {field.name}: {field.type}; {default}".replace("`", "")
            yield from _DETAIL.wrap(field.text)
    if kind.metrics:
        yield from ("", "metrics:")
    for metric in kind.metrics:
        yield f"  {metric.id}: {metric.unit} over {metric.population}; better: {metric.direction}"
        yield from _DETAIL.wrap(metric.definition)


def _spec_lines(resolved: ResolvedSpec) -> Iterator[str]:
    yield f"stages: {', '.join(stage.name for stage in resolved.spec.stages)}"
    yield f"registration: {resolved.registration()}"
    named = {"heldout": resolved.spec.heldout, **resolved.spec.data}
    for name, digest in sorted(resolved.data_digests.items()):
        yield f"{named[name].path}: {digest}"
    for name, texts in sorted(resolved.data_notes().items()):
        for line in texts:
            yield f"{named[name].path}: {line}"
    if line := resolved.spec.describe_constitution():
        yield f"constitution: {line}"
    for line in notes(resolved.spec):
        yield f"note: {line}"
    for stage in resolved.spec.stages:
        for line in notes_of(resolved.scripts[digest_of(stage.script)]) if stage.script else ():
            yield f"{stage.name}: {path_of(stage.script or '')}: {line}"
    if (curve := resolved.spec.analysis.learning_curve) is not None:
        names = ", ".join(f"'{name}'" for name in curve.arms)
        yield f"learning curve: {names} and the treatment, {curve.form}, read at {curve.at} examples; decides nothing"
    yield from estimate(resolved).lines()
    for plan in plans(resolved.spec, Path(resolved.origin)):
        yield from _PLAN.wrap(f"{plan.stage}: {plan.description}")


@app.command("pin")
def pin_files(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC", help="Spec file; or a folder, for its experiment.yaml.", show_default="this folder"
        ),
    ] = Path(HERE),
    as_json: Json = False,
) -> None:
    """Write the digests of the held-out split and of all data files into a spec, and change nothing else.

    Without this, `start` registers the files as they are then. With it, a spec is refused as soon as a file differs.
    """
    from specs.session.pins import pin

    # A shipped spec is not written to, so its name means nothing here.
    path = find_spec(str(spec)) if spec.is_dir() else spec
    pinned = pin(path)
    if as_json:
        print_json({"spec": str(path), "pinned": [pin._asdict() for pin in pinned]})
        return
    for current_pin in pinned:
        done = (
            "as it was"
            if current_pin.before == current_pin.digest
            else f"before: {current_pin.before}"
            if current_pin.before
            else "new"
        )
        print_line(f"{current_pin.where}: {current_pin.path} {current_pin.digest} ({done})")


@app.command("sign")
def sign(spec: SpecName, runs: Runs = DEFAULT_RUNS, profile: Profile = None, by: By = None) -> None:
    """Sign a spec that a program wrote, so that it may start one session.

    Shows the spec, and asks at the terminal. A changed spec or data file needs another signature.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("signing needs an interactive terminal", where=spec, hint="no program can sign a spec")
    path = find_spec(spec)
    resolved = load_spec(path, profile)
    # Slow: the checks of the gate.
    from sessions.runtime.preflight import design_forecast

    for line in (*_spec_lines(resolved), *design_forecast(resolved).lines(), *_signed_lines(resolved)):
        print_line(f"  {line}")
    print_line(
        f"Signed, this spec may start one session in {runs}, and spend its budget. `peergate spec show` shows all."
    )
    print_line(f"Type its name ({resolved.spec.name}) to sign:")
    if sys.stdin.readline().strip() != resolved.spec.name:
        raise UserError("the name does not match; nothing was signed", where=spec)
    keep_signature(runs, resolved.registration(), by or getpass.getuser())
    trust_spec(resolved, sandbox=resolved.spec.verifier.sandbox)
    print_line(f"signed: {resolved.registration()}")


def _signed_lines(resolved: ResolvedSpec) -> Iterator[str]:
    """Yield what decides whether a result counts, and what it may cost."""
    spec = resolved.spec
    yield f"objective: {spec.objective}"
    yield f"budget: {spec.budget.max_cost_usd:g} USD, {spec.budget.max_hours:g} hours"
    yield f"builder: {_party(spec.builder)}; reviewers: {', '.join(map(_party, spec.reviewers()))}"
    yield f"analysis: {', '.join(f'{name} {value}' for name, value in spec.analysis.model_dump(mode='json').items())}"
    usual = Thresholds()
    changed = {name: value for name, value in spec.thresholds if value != getattr(usual, name)}
    yield f"thresholds other than usual: {', '.join(f'{name} {value}' for name, value in changed.items()) or 'none'}"
    for stage in spec.stages:
        criteria = "; ".join(str(criterion) for criterion in stage.gate.criteria) or "the checks alone"
        yield f"{stage.name}: {stage.kind}, at most {stage.gate.max_rounds} attempts; criteria: {criteria}"


def _party(value: BuilderSpec | ReviewerSpec) -> str:
    """Return who builds or judges, and which address is sent your key."""
    named = f"{value.vendor}:{value.model}" if value.model else value.vendor
    return f"{named} at {value.base_url}" if value.base_url else named


@app.command("schema")
def schema() -> None:
    """Print the JSON Schema of a spec, with the stage kinds that are installed.

    `peergate spec schema > spec.schema.json`, and `# yaml-language-server: $schema=spec.schema.json` on a spec's first
    line, let an editor complete and check it. Rules that join several values are only in `spec check`.
    """
    from specs.schemas import schema_text

    for line in schema_text(SessionSpec).splitlines():
        print_line(line)


@app.command("show")
def show(spec: SpecName = HERE, as_json: Json = False, profile: Profile = None) -> None:
    """Show a spec with everything resolved, and its registration digest."""
    resolved = load_spec(find_spec(spec), profile)
    data = resolved.model_dump(mode="json")
    if as_json:
        print_json({"registration": resolved.registration(), "resolved": data})
        return
    print_line(f"# registration: {resolved.registration()}")
    for line in dump_yaml(data).split("\n")[:-1]:
        print_line(line)
