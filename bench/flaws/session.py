"""A small session with real jobs, gates and witnesses on a model of two layers; one operator may plant its flaw."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from unittest import mock

from bench.flaws.lying import Machine, lying
from bench.flaws.operator import AUDIT, Answer, Change, Operator
from bench.flaws.small_specs import APPROVED, Variation, register_spec, write_spec
from reviews.audit.verify import verify_run
from reviews.trail.chain import keys
from sessions.pages.overview import overview
from sessions.pages.report.live_display import Terminal
from sessions.run.run_history import read_history
from sessions.run.run_layout import STORE, TRAIL
from sessions.runtime import human_actions, wiring
from specs.system.errors import PeergateError
from specs.trail.gate_bodies import PacketEntry
from testing.fixtures.quick_session import Silent, draw_nothing, drive, quick_session
from testing.fixtures.reviewer_here import key_here

PERSON = "Someone"


@dataclass(frozen=True)
class SessionEnd:
    """How a session ended: what it came to, and what was found on the way."""

    outcome: str
    failed: tuple[str, ...]
    """Every check that failed, refusals, what the report says of people, and damage that an audit found."""
    warned: tuple[str, ...] = ()
    """Every check that only warned."""
    blocked: tuple[str, ...] = ()
    """Every check that had no evidence or broke, and closed its gate thereby."""
    right: tuple[tuple[str, int, int, int], ...] = ()
    """By kind of held-out items: how many there are, and how many were right before and after."""

    @property
    def is_accepted(self) -> bool:
        """Whether the claim of an effect was accepted, and nothing says that its evidence was changed afterwards."""
        return self.outcome == "approve" and not any(text.startswith(AUDIT) for text in self.failed)


class _Desk:
    """What someone does to a stopped session, as the commands do it."""

    def __init__(self, run: Path, model: Path, operator: Operator, variation: Variation) -> None:
        self.run = run
        self._model, self._operator, self._variation = model, operator, variation
        self.refused: list[str] = []

    def amend(self, *changes: Change, override: bool = False) -> None:
        """Put another spec in force; what is refused is kept, and changes nothing."""
        folder = self.run.parents[1]
        text = (folder / "spec.yaml").read_text(encoding="utf-8")
        path = write_spec(folder, self._model, self._variation, (*self._operator.spec, *changes))
        display = cast(Terminal, Silent())
        try:
            done = human_actions.amend(self.run, path, PERSON, "it should pass now", override, display).body
            if done.outcome != "approve":
                self.refused += [f"amendment: {done.outcome}"]
        finally:
            shutil.copyfile(path, folder / "amended.yaml")
            (folder / "spec.yaml").write_text(text, encoding="utf-8")

    def answer(self, answer: Answer, reason: str) -> None:
        """Answer what the session asks, and let it go on."""
        arguments = {"answer": answer, "reason": reason, "by": PERSON, "expires": None}
        drive(_session(self.run, self._operator, self._variation), arguments)

    def waits(self) -> bool:
        """Return whether the session waits for an answer."""
        return overview(self.run).state == "waiting"

    def lift(self, check: str, stage: str) -> None:
        """Lift a check of a stage."""
        human_actions.lift_check(self.run, check, stage, PERSON, "it is in the way", None)

    def retract(self, judgement: str) -> None:
        """Take a judgement back."""
        human_actions.retract(self.run, judgement, PERSON, "another would be better", cast(Terminal, Silent()))


def _session(run: Path, operator: Operator | None, variation: Variation) -> Any:
    session = quick_session(run, launcher=Machine(operator))  # pyright: ignore[reportArgumentType]
    if variation.launcher:
        assert operator is None, "a job that lies runs in this process"
        session.launcher = wiring.make_launcher(session.resolved.spec, run)
    return session


def run_session(
    folder: Path, model: Path, operator: Operator | None = None, variation: Variation | None = None
) -> SessionEnd:
    """Run a session to its end, or to the first question to a person; an operator plants its flaw in it."""
    draw_nothing()
    variation = variation or Variation(session=operator.session if operator else "sft")
    with mock.patch.object(keys, "key_apart", key_here):
        try:
            run = register_spec(folder, model, operator, variation)
        except (PeergateError, ValueError) as error:
            return SessionEnd("refused", (str(error),))
        parts: list[str] = []
        with lying(run, operator):
            try:
                drive(_session(run, operator, variation))
                _approve(run, operator, variation)
                if operator and operator.person and overview(run).state == "waiting":
                    desk = _Desk(run, model, operator, variation)
                    try:
                        operator.person(desk)
                    finally:
                        parts += desk.refused
            except (PeergateError, ValueError) as error:
                parts.append(str(error))
        return _end_session(run, operator, parts)


def _approve(run: Path, operator: Operator | None, variation: Variation) -> None:
    """Approve the gate that a person approves in a healthy session of this name."""
    state, stage = overview(run), APPROVED.get(variation.session)
    if stage is not None and state.state == "waiting" and state.stage == stage:
        arguments = {"answer": "approve", "reason": "its verdicts are not used", "by": PERSON, "expires": None}
        drive(_session(run, operator, variation), arguments)


def _end_session(run: Path, operator: Operator | None, texts: list[str]) -> SessionEnd:
    state = overview(run)
    outcome = str(state.decision if state.state == "closed" else state.state)
    matching_texts = {status: tuple(_checks(run, status)) for status in ("FAIL", "WARN", "BLOCKED", "ERROR")}
    texts += _read_report(run)
    if operator and operator.tamper:
        operator.tamper(run)
    if state.state == "closed" and operator and (operator.tamper or operator.later):
        texts += [f"{AUDIT}: {text}" for text in verify_run(run, TRAIL, STORE).damage]
    return SessionEnd(
        outcome,
        (*matching_texts["FAIL"], *texts),
        matching_texts["WARN"],
        (*matching_texts["BLOCKED"], *matching_texts["ERROR"]),
        _right(run),
    )


def _report(run: Path) -> Any:
    path = run / "report" / "report.json"
    return json.loads(path.read_bytes()) if path.exists() else {}


def _right(run: Path) -> tuple[tuple[str, int, int, int], ...]:
    kinds = _report(run).get("accuracy_by_kind") or {}
    return tuple((name, kind["items"], kind["baseline"], kind["treatment"]) for name, kind in kinds.items())


def _read_report(run: Path) -> list[str]:
    """Return what the report says that people did to the result."""
    report = _report(run)
    return [
        *(["report.override"] if report.get("overrides") else []),
        *(["report.exploratory"] if report.get("exploratory") else []),
        *(["report.retracted"] if any(value["kind"] == "retraction" for value in report.get("people", ())) else []),
    ]


def _checks(run: Path, status: str) -> dict[str, None]:
    """Return the ids of all checks with a status, in the order of the gates, those of amendments too."""
    history, results = read_history(run), dict[str, None]()
    for entry in history.of(PacketEntry):
        packet: Any = history.store.get_value(entry.body.packet)
        results |= {check["id"]: None for check in packet["checks"] if check["status"] == status}
    return results
