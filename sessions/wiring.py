"""The only place where concrete parts are chosen: launcher, builder, reviewer, store, trail."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import platformdirs

from agents.builder import Builder
from agents.playbook import Playbook
from reviews.checklist import Checklist
from reviews.collect import registered_spec
from reviews.measure import measuring_code
from reviews.panel import Panel
from reviews.reviewer import Reviewer
from reviews.store import Store
from reviews.trail import Trail
from sessions.folders import STORE, TRAIL
from sessions.jobs.local import LocalLauncher
from sessions.person import Person
from sessions.session import Display, Session
from specs.errors import UserError
from specs.session import ResolvedSpec, SessionSpec
from specs.session import Reviewer as ReviewerSpec

INBOX = "verdicts"
"""Where the verdicts that people give as files wait for the session."""


def cache_folder() -> Path:
    """Return where converted models are kept: ``PEERGATE_CACHE`` or the platform's cache folder."""
    named = os.environ.get("PEERGATE_CACHE")
    return Path(named).resolve() if named else Path(platformdirs.user_cache_dir("peergate"))


def make_builder(spec: SessionSpec) -> Builder:
    """Return the builder a spec names.

    Raises:
        UserError: this version has no such builder yet.
    """
    if spec.builder.vendor == "playbook":
        return Playbook()
    raise UserError(
        f"builder vendor '{spec.builder.vendor}' is not in this version", hint="use `builder: {vendor: playbook}`"
    )


def make_reviewer(spec: SessionSpec, run: Path) -> Reviewer | Panel:
    """Return the reviewer or the panel a spec names, for a run folder.

    Raises:
        UserError: its key is not set, its package is not installed, or no price is known of its model.
    """
    if spec.panel is None:
        return _one_reviewer(spec.reviewer, run)
    last = spec.panel.tie_breaker
    return Panel(
        members=tuple(_one_reviewer(member, run) for member in spec.panel.members),
        quorum=spec.panel.quorum,
        tie_breaker=_one_reviewer(last, run) if last else None,
    )


def _one_reviewer(reviewer: ReviewerSpec, run: Path) -> Reviewer:
    if reviewer.vendor == "checklist":
        return Checklist()
    if reviewer.vendor == "person":
        return Person(run / INBOX)
    # Imported here: whoever needs no model needs no SDK.
    try:
        from reviews.vendors.modelled import model_reviewer
    except ModuleNotFoundError as error:
        raise UserError(f"package '{error.name}' is not installed", hint="pip install 'peergate[reviewers]'") from error
    return model_reviewer(reviewer)


def make_session(run: Path, display: Display, resolved: ResolvedSpec | None = None) -> Session:
    """Wire a session on a run folder; without ``resolved`` it is read back from the trail."""
    # Now, while what is on disk is what was loaded.
    measuring_code()
    run = run.resolve()
    name = run.name
    trail = Trail(run / TRAIL, name)
    store = Store(run / STORE)
    if resolved is None:
        trail.verify_chain()
        resolved, _ = registered_spec(list(trail.iterate()), store)
    return Session(
        name=name,
        run=run,
        cache=cache_folder(),
        resolved=resolved,
        trail=trail,
        store=store,
        launcher=LocalLauncher(),
        builder=make_builder(resolved.spec),
        wire_reviewer=partial(make_reviewer, resolved.spec, run),
        display=display,
    )
