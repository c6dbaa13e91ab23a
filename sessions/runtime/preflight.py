"""What `start` refuses before a session exists, and what its design gate would decide: for `start` and `spec check`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from reviews.evidence.defect_waves import SHIP_CHECKS
from reviews.gate.check_list import all_checks
from reviews.gate.gate_decision import settle
from reviews.gate.packet import build_design_packet
from reviews.gate.packet_derivation import check_design_files
from reviews.reviewers.checklist import Checklist
from sessions.jobs import machine_capacity
from sessions.pages.overview import EXIT_CODES
from sessions.pages.result import group_by_detail
from sessions.run.money.estimate import require_disk, require_disk_limit
from sessions.runtime.plugin_imports import require_importable
from sessions.runtime.wiring import cache_folder, make_builder, make_reviewer, require_launchers, require_machine
from specs.jobs.job_records import CodeState
from specs.loading.loading import spec_error
from specs.session.needed_packages import missing_packages
from specs.session.session_spec import ResolvedSpec, SessionSpec
from specs.stages.registry import kind_of
from specs.system.confinement.bubblewrap import why_unavailable
from specs.system.digests import digest_value
from specs.system.errors import BlockedError, ExitCode, SpecError, UserError
from specs.system.extras import install_hint
from specs.system.yaml.problems import LintProblem, suggest
from specs.trail.verdict import CLOSED, CheckResult, Decision
from training.jobs.base_model import SourceError, find
from training.jobs.tokenizer_alone import tokenizer_folder
from training.planning.data_fit import DataFitFault, TokenizerUnavailable, data_faults
from training.planning.memory_fit import misfits
from training.running_code import code_state


class DesignForecast(NamedTuple):
    """What the design gate would decide now by its checks alone."""

    checks: tuple[CheckResult, ...]
    decision: Decision
    reviewers: tuple[str, ...]
    """The reviewers that `start` asks and a forecast cannot: they may still close the gate."""

    @property
    def exit_code(self) -> ExitCode:
        """What `start` would end with at this gate; DONE where it opens."""
        return EXIT_CODES.get(self.decision.outcome, ExitCode.BLOCKED)

    def as_json(self) -> dict[str, Any]:
        """Return the outcome, its reasons and the status of every check."""
        return {
            "outcome": self.decision.outcome,
            "reasons": list(self.decision.reasons),
            "checks": {check.id: check.status for check in self.checks},
            "not_asked": list(self.reviewers),
        }

    def lines(self) -> Iterator[str]:
        """Yield the printed lines: the outcome, and the checks that did not simply pass."""
        counts = Counter(check.status for check in self.checks)
        message = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        yield f"design gate: {self.decision.outcome} ({message})"
        for status, ids, detail in group_by_detail(self.checks, (*CLOSED, "WARN")):
            yield f"  {status} {ids}: {detail}"
        if self.reviewers:
            yield f"  not asked before `start`: {', '.join(self.reviewers)}"


def design_forecast(resolved: ResolvedSpec) -> DesignForecast:
    """Run the design gate on the files as they are now, with the reviewer that needs no model."""
    checks = check_design_files(resolved, resolved.read_data().values(), resolved.attempt_costs())
    digest = digest_value([check.model_dump(mode="json") for check in checks])
    packet = build_design_packet(resolved, checks, checks_digest=digest)
    decision = settle(resolved, packet, Checklist().review(packet, packet.content_digest()), 1)
    reviewers = [reviewer.vendor for reviewer in resolved.spec.reviewers() if reviewer.vendor != Checklist.name]
    return DesignForecast(checks, decision, tuple(dict.fromkeys(reviewers)))


def require_startable(
    resolved: ResolvedSpec, path: Path, profile: str | None, runs: Path, fit: list[DataFitFault] | None = None
) -> CodeState:
    """Check what a session needs of this machine: plug-ins, keys, packages, hardware, disk, weights and clean code.

    ``fit`` is what :func:`data_fit` returned, where it is known. Returns the state of the code that would run.

    Raises:
        SpecError: an attempt of each stage may leave more than ``budget.max_disk_gb``; registered rows do not fit the
            model that trains on them or is asked; or a criterion names a check that does not run at its stage.
        PluginFault: what the spec uses of other distributions cannot be imported.
        Blocked: the machine or its disk lacks what a stage asks for, or its planned memory.
        UserError: a launcher cannot be made; a key, a package, a price or the model is missing; or the spec requires
            clean code, and this is not.
    """
    spec = resolved.spec
    require_importable(resolved)
    make_builder(spec)
    make_reviewer(spec)
    require_launchers(spec, runs / spec.name)
    require_machine(spec)
    require_packages(spec)
    require_memory(resolved)
    _require_cache()
    require_disk_limit(resolved, path, profile)
    require_disk(resolved, runs)
    if faults := [fault for fault in (data_fit(resolved) if fit is None else fit) if fault.closing]:
        problems = [LintProblem(fault.loc, fault.message, fault.hint) for fault in faults]
        raise SpecError(
            [problem for lint_problem in problems for problem in spec_error(path, profile, lint_problem).problems]
        )
    if unknown := list(_unknown_checks(resolved)):
        raise SpecError(
            [problem for lint_problem in unknown for problem in spec_error(path, profile, lint_problem).problems]
        )
    for source in (spec.model, spec.control):
        if source is not None:
            _require_weights(source.source, Path(resolved.origin))
    state = code_state()
    if spec.clean_code == "required" and state.state != "clean":
        hint = "run from a git checkout of Peergate without changes, or omit the line: the state is then recorded"
        raise UserError(f"the spec requires clean code, and this is {state}", where="clean_code", hint=hint)
    return state


def require_packages(spec: SessionSpec) -> None:
    """Raise Blocked for the first stage that runs here and needs a package which is not installed."""
    if missing := missing_packages(spec):
        first = missing[0]
        named = ", ".join(dict.fromkeys(package.module for package in missing if package.extra == first.extra))
        hint = install_hint(first.extra)
        raise BlockedError(f"needs packages that are not installed: {named}", where=first.where, hint=hint)


def require_memory(resolved: ResolvedSpec) -> None:
    """Raise Blocked for the first stage whose planned memory exceeds what will run it, with changes that would fit."""
    spec = resolved.spec
    for misfit in misfits(spec, Path(resolved.origin), machine_capacity.capacities(spec)):
        if misfit.exceeds:
            changes = " | ".join(misfit.changes) or "none of batch, length, checkpointing, lora or qlora suffices"
            hint = f"changes that would fit: {changes}; or choose a larger machine or a smaller model"
            raise BlockedError(misfit.message, where=misfit.stage, hint=hint)


def machine_warnings(resolved: ResolvedSpec) -> Iterator[str]:
    """Yield a line for each stage that hardly fits what will run it, or whose script has no sandbox here."""
    spec = resolved.spec
    for stage in spec.stages:
        if kind_of(stage).runs_code and spec.launcher_of(stage.name) == "local" and (why := why_unavailable()):
            yield f"WARN {stage.name}: no sandbox, so a person will be asked to allow its script: {why}"
    for misfit in misfits(spec, Path(resolved.origin), machine_capacity.capacities(spec)):
        if not misfit.exceeds:
            yield f"WARN {misfit.stage}: {misfit.message}: less than a tenth is left"


def _require_cache() -> None:
    """Raise UserError if converted models cannot be kept in the cache folder."""
    folder = cache_folder()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        hint = "PEERGATE_CACHE names another folder"
        raise UserError("the folder for converted models cannot be written to", where=str(folder), hint=hint)


def _unknown_checks(resolved: ResolvedSpec) -> Iterator[LintProblem]:
    """Yield the acceptance criteria on a check that does not run at their stage: nothing could discharge them."""
    for place, criterion in enumerate(resolved.spec.criteria):
        if criterion.check is None and not criterion.ship:
            continue
        kind = kind_of(resolved.spec.stage(criterion.stage))
        known = [check.id for check in all_checks(resolved) if check.belongs_to(kind)]
        if criterion.check is not None and criterion.check not in known:
            message = f"no check '{criterion.check}' runs at '{criterion.stage}', a stage of {kind.name}"
            yield LintProblem(("criteria", place, "check"), message, suggest(criterion.check, known, "these run there"))
        elif criterion.ship and not any(id.startswith(SHIP_CHECKS) for id in known):
            message = f"no check of the ship gate runs at '{criterion.stage}', a stage of {kind.name}"
            yield LintProblem(
                ("criteria", place, "ship"), message, "name a stage that leaves a checkpoint or an export"
            )


def data_fit(resolved: ResolvedSpec, folder: Path | None = None) -> list[DataFitFault]:
    """Return what of the registered rows does not fit the model; a warning if its tokenizer is not here to tell.

    ``folder`` is where the spec will lie, if not where it was read.
    """
    spec, origin = resolved.spec, folder or Path(resolved.origin)
    try:
        source = spec.model.source
        folders = (lambda: _tokenizer_of(source, origin), lambda: _converted_tokenizer(source, origin))
        return list(data_faults(spec, resolved.read_data(), *folders))
    except TokenizerUnavailable:
        message = f"not checked yet whether the data fit: the tokenizer of {spec.model.source} is not here"
        return [DataFitFault(("model", "source"), message, "the gates of the stages check it", closing=False)]


def _converted_tokenizer(source: str, origin: Path) -> Path | None:
    """Return a folder with the tokenizer of a model whose weights still have to be converted; None if there is none."""
    try:
        path = find(source, origin)
        return tokenizer_folder(path, cache_folder()) if path.suffix == ".gguf" else None
    except (SourceError, ImportError, OSError, ValueError):
        return None


def _tokenizer_of(source: str, origin: Path) -> Path | None:
    """Return a folder with the tokenizer of a source; None where the weights still have to be fetched or converted."""
    try:
        path = find(source, origin)
    except SourceError:
        return None
    if path.is_dir():
        return path
    # Conversions differ in their weights' bytes, not in the tokenizer.
    made = (cache_folder() / "models").glob(f"{source.partition(':')[2]}-*/tokenizer.json")
    return max((path.parent for path in made), key=lambda path: path.stat().st_mtime, default=None)


def _require_weights(source: str, origin: Path) -> None:
    try:
        find(source, origin)
    except SourceError as error:
        raise UserError(f"the model cannot be prepared: {error}", where=source) from error
