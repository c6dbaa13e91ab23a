"""`peergate audit verify --again`: the witnesses of a session, repeated with a challenge of one's own."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from reviews.audit.witness_needs import Need, witness_needs
from reviews.gate.challenge import RepeatedChallenge
from sessions.commands.output import print_line, say
from sessions.jobs.repeated_witness import RepeatedWitness, Repetition, copies_of, stages_without
from sessions.pages.trail_place import TrailPlace
from sessions.run.terminal import masked_line
from specs.system.errors import NOT_WITNESSED

LISTED_ROWS = 5


@dataclass(frozen=True)
class RepeatOptions:
    """Which witnesses are repeated, and how."""

    again: Annotated[
        bool, typer.Option("--again", help="Also repeat the witnesses, with a new challenge and the weights here.")
    ] = False
    rows: Annotated[
        int | None,
        typer.Option("--rows", help="With --again: rows of each file; as many as the gate by default.", min=1),
    ] = None
    seed: Annotated[
        str | None, typer.Option("--seed", help="With --again: the seed of the challenge; random by default.")
    ] = None
    weights: Annotated[
        list[Path] | None, typer.Option("--weights", help="With --again: a copy of weights, known by its digest.")
    ] = None

    def refuse_alone(self) -> None:
        """Raise BadParameter for an option that says nothing without ``--again``."""
        if not self.again and (self.rows is not None or self.seed is not None or self.weights):
            raise typer.BadParameter("--rows, --seed and --weights belong to --again")


@dataclass(frozen=True)
class RepeatOutcome:
    """What repeating the witnesses found."""

    seed: str
    witnesses: tuple[RepeatedWitness, ...]
    without: tuple[str, ...]
    needs: tuple[Need, ...]

    @property
    def exit_code(self) -> int:
        """0 if every row that was drawn is right, otherwise that of `audit verify` for the rest."""
        return 0 if self.witnesses and all(value.holds for value in self.witnesses) else NOT_WITNESSED

    def as_json(self) -> dict[str, Any]:
        """Return the member ``again`` of `audit verify --json`."""
        return {
            "seed": self.seed,
            "witnesses": [value.as_data() for value in self.witnesses],
            "not_witnessed_by_the_gate": list(self.without),
            "needs": [need.as_data() for need in self.needs],
        }


def repeat(place: TrailPlace, request: RepeatOptions) -> RepeatOutcome:
    """Repeat the witnesses of a verified session; raises Blocked for copies of weights that cannot be read."""
    history, seed = place.history(), request.seed or secrets.token_hex(16)
    say(f"witnesses with the challenge of --seed {seed}")
    copies = copies_of(request.weights or (), say)
    repetition = Repetition(place.folder, history, RepeatedChallenge(seed, request.rows), copies, say)
    needs = tuple(witness_needs(history))
    return RepeatOutcome(seed, tuple(repetition.run()), tuple(stages_without(history)), needs)


def print_outcome(outcome: RepeatOutcome) -> None:
    """Print what was found, a paragraph a stage, and what else is needed where something was not witnessed."""
    print_line(f"  witnessed again with --seed {outcome.seed}:")
    for value in outcome.witnesses:
        _print_stage(value)
    if not outcome.witnesses:
        print_line("    nothing: no job of this session was witnessed")
    if outcome.without:
        print_line(f"    not witnessed by their gates: {', '.join(outcome.without)}")
    if any(value.why for value in outcome.witnesses):
        print_needs(outcome.needs)


def _print_stage(value: RepeatedWitness) -> None:
    name = f"    {value.stage}.{value.attempt}"
    if value.why:
        print_line(f"{name}: NOT WITNESSED: {masked_line(value.why, 1000)} ({value.seconds:.1f} s)")
        return
    right = f"{max(value.read - value.wrong, 0)} of {value.read} {value.unit} reproduced, "
    right += f"of {value.of} ({value.seconds:.1f} s)"
    print_line(f"{name}: {'' if value.holds else 'NOT REPRODUCED: '}{right}")
    for check in value.checks:
        print_line(f"      {check.status} {check.id}: {masked_line(check.detail, 500)}")
        for row in check.rows[:LISTED_ROWS]:
            where = next((f"{name} {row[name]}: " for name in ("row", "step") if name in row), "")
            print_line(f"        {where}{masked_line(row.get('why', ''), 300)}")
    for line in value.differs:
        print_line(f"      here: {masked_line(line, 300)}; the registered tolerances hold, the coarser type's")


def print_needs(needs: Sequence[Need]) -> None:
    """Print what each witness needs."""
    for need in needs:
        print_line(
            f"    {need.stage}.{need.attempt} needs (it was engine {need.engine}, {need.dtype} on {need.device}):"
        )
        for weights in need.weights:
            where = f", from {masked_line(weights.source, 200)}" if weights.source else ""
            print_line(f"      {weights.role}: {weights.reference} {weights.digest}{where}")
