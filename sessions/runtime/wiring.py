"""Chooses the concrete parts of a session, and only this module does: launcher, builder, reviewer, store, trail."""

from __future__ import annotations

import os
import sys
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from agents.playbook import Playbook
from agents.workbench_protocol import Builder
from reviews.checks.measuring_code import measuring_code
from reviews.gate.panel import ReviewPanel
from reviews.gate.reviewer import PacketReviewer
from reviews.history.history import History
from reviews.reviewers.person import Person
from reviews.reviewers.process.client import ReviewerProcess
from reviews.reviewers.process.reviewer_proxy import party
from reviews.trail.chain.keys import KeyFolder
from reviews.trail.chain.store import Store
from reviews.trail.trail import Trail
from sessions.jobs import machine_capacity
from sessions.jobs.engine_launcher import EngineLauncher
from sessions.jobs.launcher import Launcher, PerStage
from sessions.jobs.local_launcher import LocalLauncher
from sessions.jobs.transfer.job_transfer import place_of
from sessions.run.run_layout import STORE, TRAIL
from sessions.run.signed_specs import trust_programs
from sessions.session import Session
from specs.session.operations import LAUNCHERS
from specs.session.session_spec import ResolvedSpec, SessionSpec
from specs.stages.recipes import script_file
from specs.stages.registry import kind_of
from specs.system import plugins
from specs.system.confinement import task_file
from specs.system.confinement.program_process import require_sandbox
from specs.system.confinement.verifier_command import NoSandbox
from specs.system.errors import BlockedError, PluginFault, UserError
from specs.system.resources import LauncherName
from specs.system.text import plain
from specs.trail.key_policy import PERSON

if TYPE_CHECKING:
    from sessions.pages.report.live_display import Terminal


def cache_folder() -> Path:
    """Return where converted models are kept: ``PEERGATE_CACHE`` or the platform's cache folder."""
    named = os.environ.get("PEERGATE_CACHE")
    return Path(named).resolve() if named else Path(platformdirs.user_cache_dir("peergate"))


def make_builder(spec: SessionSpec, late: bool = False) -> Builder:
    """Return a spec's builder; UserError without its key (``late``: looked for at its first use), package or price."""
    if spec.builder.vendor == "playbook":
        return Playbook()
    if spec.builder.vendor == "external":
        from agents.external_builder import AbsentBuilder

        # `peergate mcp` replaces it by the builder that talks to its client.
        return AbsentBuilder()
    # Imported here: a session without a model needs no SDK.
    from agents.model_builder import ModelBuilder

    builder = ModelBuilder(spec.builder)
    if not late:
        _ = builder.model
    return builder


def make_reviewer(spec: SessionSpec, process: ReviewerProcess | None = None) -> PacketReviewer | ReviewPanel:
    """Return a spec's reviewer or panel, mute without their process; UserError without a key, package or price."""
    process = process or reviewer_process(spec, Path())
    every: list[PacketReviewer] = [
        Person() if reviewer.vendor == PERSON else party(process, number)
        for number, reviewer in enumerate(process.reviewers)
    ]
    if spec.panel is None:
        return every[0]
    count = len(spec.panel.members)
    tie_breaker = every[count] if spec.panel.tie_breaker else None
    return ReviewPanel(members=tuple(every[:count]), quorum=spec.panel.quorum, tie_breaker=tie_breaker)


def reviewer_process(spec: SessionSpec, run: Path) -> ReviewerProcess:
    """Return the process of a session's reviewers; it starts at the first question to one of them."""
    keys = KeyFolder.of_trail(run / TRAIL)
    return ReviewerProcess(run.name, spec.reviewers(), keys.path("reviewer"), run)


def require_machine(spec: SessionSpec) -> None:
    """Raise Blocked for the first stage that runs, or is judged, on this machine and asks for more than it has."""
    for stage in spec.with_resources().stages:
        if kind_of(stage).judged_in_sandbox:
            _require_sandbox(stage.name, "its gate runs programs")
        if spec.launcher_of(stage.name) != "local":
            continue
        if kind_of(stage).environment:
            _require_sandbox(stage.name, "it runs another library's task")
        machine_capacity.require(stage.resources, stage.parameters.model_dump(), stage.name)
        if missing := script_file.lacking(getattr(stage.parameters, "requires", ())):
            named = " ".join(f"'{text}'" if {*text} & {*"<>"} else text for text in missing)
            # What a script needs may pin other versions than Peergate: its own environment stays as it is.
            install = f"{sys.executable} -m pip install --target script-packages {named}"
            hint = f"{install} && export {script_file.PACKAGES}=$PWD/script-packages"
            raise BlockedError(
                f"its script needs packages that are not installed: {', '.join(missing)}", where=stage.name, hint=hint
            )


def _require_sandbox(stage: str, what: str) -> None:
    try:
        require_sandbox()
    except NoSandbox as error:
        raise BlockedError(f"{what} in a sandbox: {error}", where=stage, hint="see docs/how-to/install.md") from error


def make_launcher(spec: SessionSpec, run: Path) -> Launcher:
    """Return the launcher of a session, or raise UserError if a package is missing or an address is malformed."""
    names: dict[str, LauncherName] = {stage.name: spec.launcher_of(stage.name) for stage in spec.stages}
    made = {name: _make_named_launcher(name, run) for name in set(names.values())}
    if len(made) == 1:
        return next(iter(made.values()))
    return PerStage({stage: made[name] for stage, name in names.items()})


def require_launchers(spec: SessionSpec, run: Path) -> None:
    """Raise UserError if a launcher of a session that is about to start cannot be made, or lacks its library."""
    make_launcher(spec, run)
    if any(spec.launcher_of(stage.name) == "ray" for stage in spec.stages):
        from sessions.jobs.ray.cluster_head import SessionCluster, require_ray

        if SessionCluster(run).is_own:
            require_ray(str(run))


def _make_named_launcher(name: LauncherName, run: Path) -> Launcher:
    if name == "local":
        return LocalLauncher()
    # A distribution cannot take over one of Peergate's own names.
    if name not in LAUNCHERS and (point := plugins.find("peergate.launchers", name)) is not None:
        return _plugin_launcher(point, run)
    python, place = os.environ.get("PEERGATE_JOB_PYTHON", sys.executable), place_of(run)
    if name == "skypilot":
        from sessions.jobs.skypilot.skypilot_engine import ASK_EVERY_S, sky_engine

        if place is None:
            message = "a rented machine does not see this disk, and no place for transfers is named"
            raise UserError(message, where="PEERGATE_PLACE", hint="s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
        return EngineLauncher(sky_engine(), place, python, ask_every_s=ASK_EVERY_S)
    from sessions.jobs.ray.cluster_head import SessionCluster
    from sessions.jobs.ray.ray_engine import RayEngine

    cluster = SessionCluster(run)
    engine = RayEngine(cluster, lambda resources: machine_capacity.lacking(resources) if cluster.is_own else [])
    return EngineLauncher(engine, place, python)


def _plugin_launcher(point: EntryPoint, run: Path) -> Launcher:
    """Return the launcher that an entry point's function makes for a run folder; PluginFault if it makes none."""
    make = plugins.load(point)
    made: Any = plugins.run_bounded(lambda: make(run), plugins.where(point))
    missing = [value for value in ("name", "start", "poll", "cancel") if not hasattr(made, value)]
    if missing:
        message = f"makes a {type(made).__name__} without {', '.join(missing)}, which every launcher has"
        raise PluginFault(message, where=plugins.where(point))
    if made.name != point.name:
        raise PluginFault(f"makes a launcher named '{plain(str(made.name), 60)}'", where=plugins.where(point))
    return made


def make_session(run: Path, display: Terminal, resolved: ResolvedSpec | None = None) -> Session:
    """Wire a session on a run folder; without ``resolved`` it is read back from the trail."""
    # Slow: what writes reports, which `spec check` does not need.
    from sessions.exports.mirrors import Mirrors
    from sessions.exports.notices.notifier import Notifier

    # Now, while the files on disk are the loaded ones.
    measuring_code()
    run = run.resolve()
    trail, store = Trail(run / TRAIL, run.name), Store(run / STORE)
    if resolved is None:
        trail.verify_chain()
        resolved = History(trail.iterate(), store).resolved
    for task in resolved.spec.tasks():
        task_file.recall(task)
    trust_programs(resolved)
    process = trail.reviewer = reviewer_process(resolved.spec, run)
    policy = trail.policy()
    process.humans = tuple(key.public for key in policy.keys if key.role == "human") if policy else ()
    notifier = Notifier(run, trail, store, resolved, display.say)
    mirrors = Mirrors(run, trail, store, resolved, display.say)

    def notify() -> None:
        notifier.look()
        mirrors.look()

    session = Session(
        name=run.name,
        run=run,
        cache=cache_folder(),
        resolved=resolved,
        trail=trail,
        store=store,
        launcher=make_launcher(resolved.spec, run),
        # Ending or reading a session needs no key.
        builder=make_builder(resolved.spec, late=True),
        wire_reviewer=partial(make_reviewer, resolved.spec, process),
        reviewing=process,
        display=display,
        notify=notify,
    )
    process.waits = lambda seconds, why: display.say(f"  reviewer: waits {seconds:.0f} s: {why}")
    process.meanwhile = session.checkpoint
    return session
