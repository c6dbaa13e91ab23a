"""`peergate override | retract | amend`, and `review show | give` for a person who reviews."""

from __future__ import annotations

import getpass
import sys
import time
from pathlib import Path
from typing import NoReturn

from reviews.reviewers.person import give, summary, template, waiting
from reviews.trail.envelope import Recorded
from reviews.trail.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from sessions import human_actions
from sessions.amendment import amend as amend_session
from sessions.commands import run as runs_of
from sessions.commands.output import print_json, print_line
from sessions.report.live_display import Terminal
from sessions.run.run_layout import STORE, TRAIL, require_run, run_folder
from sessions.terminal import masked_line
from specs.errors import ExitCode, UserError
from specs.session.loading import find_spec
from specs.text import json_text
from specs.trail.verdict import Packet


def override(
    name: str,
    runs: Path,
    gate: bool,
    check: str | None,
    stage: str | None,
    condition: str | None,
    by: str | None,
    reason: str,
    expires: str | None,
) -> None:
    """Record an override; one of the waiting gate also goes on with the session."""
    who = by or getpass.getuser()
    if [gate, check is not None, condition is not None].count(True) != 1:
        raise UserError("say what is lifted", hint="one of --gate, --check ID --stage STAGE, --condition ID")
    if gate:
        ends = human_actions.expiry(expires, time.time())
        runs_of.resume(name, runs, "approve", reason, who, ends)
    elif check is not None:
        if stage is None:
            raise UserError("a check is lifted for one stage", hint=f"add --stage to --check {check}")
        _said(
            human_actions.lift_check(runs / name, check, stage, who, reason, expires),
            f"check {check} is lifted for {stage}",
        )
    elif condition is not None:
        _said(
            human_actions.waive_condition(runs / name, condition, who, reason, expires),
            f"condition {condition} is waived",
        )


def retract(name: str, runs: Path, entry: str, by: str | None, reason: str) -> None:
    """Take a judgement back."""
    taken = human_actions.retract(runs / name, entry, by or getpass.getuser(), reason, Terminal())
    _said(taken, f"taken back: {', '.join(taken.body['judgements'])}")
    print_line(
        f"`peergate resume {name} --answer retry|stop --reason ...` settles what follows, if the session is open"
    )


def amend(name: str, runs: Path, spec: str, by: str | None, reason: str, override_review: bool) -> NoReturn:
    """Amend the registered spec; ends with the exit code of the amendment's review."""
    recorded = amend_session(runs / name, find_spec(spec), by or getpass.getuser(), reason, override_review, Terminal())
    body = recorded.body
    in_force = body["outcome"] == "approve" or body["overridden"]
    _said(recorded, f"amendment: {body['outcome']}{', overridden' if body['overridden'] else ''}")
    for change in body["changes"]:
        told = f"{change['pointer']}: {change['before']} -> {change['after']}"
        print_line(f"  {masked_line(told, 2000)}")
    for line in () if in_force else body["reasons"]:
        print_line(f"  - {masked_line(line, 2000)}")
    if in_force and body["exploratory"]:
        print_line("  every later claim of this session is exploratory: data had been seen")
    print_line("in force" if in_force else "not in force: the session stays as it was registered")
    refused = ExitCode.REJECTED if body["outcome"] == "reject" else ExitCode.BLOCKED
    raise SystemExit(int(ExitCode.DONE if in_force else refused))


def show_packet(run: Path, as_json: bool) -> None:
    """Print the packet that waits for a person's verdict, with the form of an answer."""
    run = run_folder(run)
    packet, digest = _waiting(run)
    if as_json:
        print_json({"packet": packet.model_dump(mode="json"), "digest": digest, "form": template(packet)})
        return
    for line in summary(packet):
        print_line(line)
    print_line()
    print_line(f"the whole packet: peergate audit show {run} {digest}")
    print_line("fill this in and hand it in with `peergate review give`:")
    print_line()
    sys.stdout.write(json_text(template(packet)) + "\n")


def give_verdict(run: Path, file: Path) -> None:
    """Record a person's verdict; the session takes it when it is resumed."""
    run = require_run(run_folder(run))
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {error}", where=str(file)) from error
    trail = Trail(run / TRAIL, run.resolve().name)
    try:
        trail.verify_chain()
        given = give(trail, Store(run / STORE), text)
    finally:
        trail.close()
    print_line(f"recorded as {given.entry.key}, signed with your key; `peergate resume {run.name}` goes on")


def _waiting(run: Path) -> tuple[Packet, str]:
    _, digest = waiting(read_entries(require_run(run) / TRAIL))
    return Packet.model_validate(Store(run / STORE).get_value(digest)), digest


def _said(recorded: Recorded, text: str) -> None:
    print_line(f"entry {recorded.entry.seq}: {masked_line(text, 1000)}", err=True)
