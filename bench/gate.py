"""The error rate of the gate: ``python -m bench.gate --work FOLDER [--reviewer FILE] [--page docs/gate-figures.md]``.

Runs every flaw operator with its healthy twin and so many sound sessions, then puts the packets of those sessions to
the embedded checklist and to each ``--reviewer``: flawed and healthy ones, with edits of substance that must move a
verdict and edits of wording that must not. What FOLDER holds already is not run again; ``--page`` writes the figures.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

from bench.flaws.operators import OPERATORS
from bench.flaws.run_many import run_in_processes, run_planted_session, sound, teach_models, twin
from bench.flaws.session import SessionEnd
from bench.flaws.small_specs import tiny_model
from bench.flaws.table import page
from reviews.gate.canaries import EDITS, is_plain, plant
from reviews.gate.reviewer import PaidReviewer
from reviews.history.attempt import Attempt
from sessions.requests.gate_replay import GateReplay
from sessions.run.run_history import read_history
from specs.loading.reviewer_file import load_reviewer
from specs.system.errors import BudgetExceeded
from specs.system.vendors.parties import ReviewerSpec
from specs.trail.verdict import Packet

Level = Literal["claims", "packets", "drill-down"]
LEVELS: tuple[Level, ...] = ("claims", "packets", "drill-down")
Row = dict[str, Any]
_ONLY_CLAIMS: Row = {"sample_rows": (), "flagged_rows": (), "log_tail": "", "effective": {}, "code": "", "checks": ()}


class Case(NamedTuple):
    """A packet that a reviewer judges: as a session left it, or edited."""

    name: str
    kind: Literal["planted", "sound", "substance", "wording"]
    gate: Attempt
    packet: Packet
    replay: GateReplay


def reword(packet: Packet) -> Packet:
    """Return a packet that says the same in another order and other words: no verdict may move."""
    data = packet.model_dump(mode="json")
    objective = str(data["registered"].get("objective", ""))
    data["registered"]["objective"] = f"What this experiment is for, in short: {objective}"
    data["sample_rows"].reverse()
    data["points"] = list(reversed(data["points"]))
    for check in data["checks"]:
        check["title"] = check["title"].upper()
    return Packet.model_validate(data)


def list_cases(work: Path, spec: ReviewerSpec, planted: Sequence[Row], twins: Sequence[str]) -> Iterator[Case]:
    """Yield what a reviewer judges: gates of planted sessions that nothing else closes, of their twins, and edits."""
    for name in (*(f"twin-{session}" for session in twins), *(row["operator"] for row in planted)):
        run = work / name / "runs" / "small"
        if not (run / "trail.sqlite").exists():
            continue
        replay = GateReplay(run, read_history(run), spec, lambda _: None)
        for gate in replay.gates:
            packet = gate.packet_value
            if packet is None or not is_plain(packet):
                continue
            if not name.startswith("twin-"):
                yield Case(name, "planted", gate, packet, replay)
                continue
            yield Case(name, "sound", gate, packet, replay)
            yield Case(name, "wording", gate, reword(packet), replay)
            for edit in EDITS:
                if (other := plant(packet, edit, Random(0))) is not None:
                    yield Case(f"{name} {edit.name}", "substance", gate, other, replay)


def judge_case(case: Case, level: Level) -> Row:
    """Return what a reviewer says of a packet at a level of evidence, as a row of the results."""
    packet = case.packet.model_copy(update=_ONLY_CLAIMS) if level == "claims" else case.packet
    looking = case.replay.look_into(case.gate, {}) if level == "drill-down" else None
    verdict, _, usd = case.replay.ask(packet, looking)
    places = [
        span.pointer or "log"
        for finding in verdict.findings
        if finding.severity == "blocking"
        for span in finding.evidence
    ]
    approve = None if verdict.no_verdict else verdict.approve
    facts = {"reviewer": case.replay.reviewer.name, "evidence": level, "case": case.name, "kind": case.kind, "usd": usd}
    return facts | {"gate": case.gate.name, "approve": approve, "places": places}


def run_floor(work: Path, results: list[Row], keep: Callable[[Row], None], sound_count: int, workers: int) -> None:
    """Run the operators, their twins and the sound sessions that the results lack."""
    tiny_model(work)
    wanted = [value for value in OPERATORS if value.name not in {row.get("operator") for row in results}]
    sessions = list(dict.fromkeys(operator.session for operator in wanted))
    twins: dict[str, SessionEnd] = dict(run_in_processes(workers, twin, [(work, session) for session in sessions]))
    for result in run_in_processes(
        workers, run_planted_session, [(work, value.name, twins[value.session]) for value in wanted]
    ):
        keep(result)
    done = {row.get("healthy") for row in results}
    numbers = [number for number in range(1, sound_count + 1) if number not in done]
    teach_models(work, numbers)
    for result in run_in_processes(workers, sound, [(work, number) for number in numbers]):
        keep(result)


def run_reviewer(
    work: Path,
    spec: ReviewerSpec,
    level: Level,
    votes: int,
    results: list[Row],
    keep: Callable[[Row], None],
    max_usd: float,
) -> None:
    """Put every case to a reviewer, unless the results hold its answer; raises BudgetExceeded at ``max_usd``."""
    planted = [row for row in results if "operator" in row]
    twins = list(dict.fromkeys(operator.session for operator in OPERATORS))
    name = f"{spec.vendor}:{spec.model}" if spec.model else spec.vendor
    answers = [(row["case"], row["gate"]) for row in results if _is_of(row, name, level)]
    spent = sum(row["usd"] for row in results if _is_of(row, name, level))
    for case in list_cases(work, spec, planted, twins):
        for _ in range(answers.count((case.name, case.gate.name)), votes):
            cap = case.replay.reviewer.cost_cap(case.packet) if isinstance(case.replay.reviewer, PaidReviewer) else 0.0
            if spent + cap > max_usd:
                raise BudgetExceeded(f"{spent:.2f} of {max_usd:g} USD are spent", where="--max-cost")
            row = judge_case(case, level)
            spent += row["usd"]
            keep(row)


def _is_of(row: Row, reviewer: str, level: Level) -> bool:
    return row.get("reviewer") == reviewer and row["evidence"] == level


def main() -> int:
    """Run what was chosen; returns 1 if a flaw was accepted or a sound session was refused."""
    parser = argparse.ArgumentParser(prog="python -m bench.gate", description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="keep models, sessions and results.jsonl there")
    parser.add_argument("--sound", type=int, default=300, metavar="N", help="sound sessions (default: 300)")
    parser.add_argument("--reviewer", type=Path, action="append", default=[], help="as under 'reviewer:' of a spec")
    parser.add_argument("--evidence", choices=LEVELS, default="packets", help="what a reviewer sees")
    parser.add_argument("--votes", type=int, default=1, metavar="K", help="ask K times about each packet")
    parser.add_argument("--max-cost", type=float, default=20.0, metavar="USD", help="for each reviewer (default: 20)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="run N sessions at a time (default: 1)")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the figures")
    chosen = parser.parse_args()
    chosen.work.mkdir(parents=True, exist_ok=True)
    path = chosen.work / "results.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    results: list[Row] = [json.loads(line) for line in lines]

    def keep(row: Row) -> None:
        results.append(row)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)

    work = chosen.work.resolve()
    run_floor(work, results, keep, chosen.sound, chosen.workers)
    for spec in (ReviewerSpec(), *(load_reviewer(file, for_gates=True) for file in chosen.reviewer)):
        level = chosen.evidence if spec.asks_a_model else "packets"
        run_reviewer(work, spec, level, chosen.votes, results, keep, chosen.max_cost)
    if chosen.page:
        chosen.page.write_text(page(results), encoding="utf-8")
    missed = [row for row in results if row.get("result") in ("missed", "rejected", "broken")]
    print(f"{len(missed)} flaws accepted or sound sessions refused")
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
