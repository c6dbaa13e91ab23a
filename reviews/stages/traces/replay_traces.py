"""The judge of ``replay_traces`` stages: states and pairs are rebuilt from transcripts and raw answers."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from reviews.checks.complete_rows import as_ordered
from reviews.checks.definition import CheckOutcome, CheckRegistry, unless
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import Subjects, as_written
from reviews.evidence.row_reader import read_rows
from specs.stages.base.artifacts import Item, Preference
from specs.stages.base.metric import MetricSet
from specs.stages.traces.parameters import ReplayTracesParameters
from specs.stages.traces.rows import TraceAnswer
from specs.system.errors import EvidenceMissing, UserError
from specs.system.text import plural
from training.rules.traces.local_replay import States, make_reply, pairs_of, states_in
from training.rules.traces.pairs import whole_action
from training.rules.traces.rendering import action_of

CHECKS = CheckRegistry(("replay_traces",))
_SHOWN = 8


class ParsedTraceAnswer(NamedTuple):
    """An answer, parsed again."""

    row: TraceAnswer
    whole: bool
    tools: tuple[str, ...]


class StateSeen(NamedTuple):
    """A state, and what the answers to it do."""

    item: str
    agreed: bool
    like_trace: bool
    """Most answers do what the trace did."""


def parse_replay_parameters(evidence: Evidence) -> ReplayTracesParameters:
    """Return the granted parameters; raises EvidenceMissing."""
    return evidence.parse_parameters(ReplayTracesParameters)


def states_of(evidence: Evidence) -> States:
    """Return the states that follow from the registered transcripts; raises EvidenceMissing."""
    path = evidence.inputs.get("transcripts")
    if path is None:
        raise EvidenceMissing("the transcripts are missing")
    return _states(path, path.stat().st_mtime_ns, parse_replay_parameters(evidence).model_dump_json())


@lru_cache(maxsize=2)
def _states(path: Path, _: int, text: str) -> States:
    try:
        return states_in(read_rows(path, Item, "transcripts"), ReplayTracesParameters.model_validate_json(text))
    except (UserError, ValueError) as error:
        raise EvidenceMissing(f"the transcripts give no states: {error}", where="transcripts") from error


def rows_of(evidence: Evidence) -> tuple[TraceAnswer, ...]:
    """Return the answers; raises EvidenceMissing."""
    return read_rows(evidence.outputs.get("rows"), TraceAnswer, "answers")


def _recompute_pairs(evidence: Evidence) -> list[Preference]:
    return pairs_of(states_of(evidence), rows_of(evidence), parse_replay_parameters(evidence)).pairs


def _read_pairs(evidence: Evidence) -> tuple[Preference, ...]:
    return read_rows(evidence.outputs.get("pairs"), Preference, "pairs", may_be_empty=True)


def read(evidence: Evidence, output: str) -> Subjects:
    """Return answers, the states that are due, or the pairs that follow; raises EvidenceMissing."""
    states, rows = states_of(evidence), rows_of(evidence)
    if output == "pairs":
        preferences, pairs = _recompute_pairs(evidence), _read_pairs(evidence)
        lines = {preference.model_dump_json(): number for number, preference in enumerate(pairs, 1)}
        return Subjects(
            preferences,
            [lines.get(preference.model_dump_json(), 0) for preference in preferences],
            len(pairs),
            output,
        )
    answers = [_read_again(row, states) for row in rows]
    if output != "states":
        return as_written(answers, output)
    by_state: dict[str, list[ParsedTraceAnswer]] = {}
    for answer in answers:
        by_state.setdefault(answer.row.item, []).append(answer)
    states_seen: list[StateSeen] = []
    for value in states.shown_states:
        counts = Counter(tuple(sorted(answer.tools)) for answer in by_state.get(value.state.id, ()) if answer.whole)
        most, count = counts.most_common(1)[0] if counts else ((), 0)
        did = tuple(sorted(action_of(value.state).tools()))
        states_seen.append(StateSeen(value.state.id, count >= 2, count > 0 and most == did))
    first = {row.item: number for number, row in reversed([*enumerate(rows, 1)])}
    return Subjects(states_seen, [first.get(state_seen.item, 0) for state_seen in states_seen], len(rows))


def _read_again(row: TraceAnswer, states: States) -> ParsedTraceAnswer:
    action = whole_action(make_reply(row), states.tools)
    return ParsedTraceAnswer(row, action is not None, action.tools() if action else ())


@CHECKS.add(
    "traces.accounted",
    "Every record of the transcripts was used, or skipped with a reason",
    source="a walk over parents that loses half of a session",
)
def _check_record_account(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Read the registered transcripts again, and add up what became of their records."""
    account = states_of(evidence).account
    skipped = sum(account.skipped.values())
    if account.used + skipped != account.records:
        return CheckOutcome(
            "FAIL", f"{account.records} records, {account.used} used and {skipped} skipped", repairable=False
        )
    why = ", ".join(f"{count} {reason}" for reason, count in account.skipped.items()) or "none"
    message = f"{account.records} records, {account.used} used; skipped: {why}; {account.states} states"
    return CheckOutcome("PASS", message, float(account.states))


@CHECKS.add(
    "traces.states",
    "Every selected state was shown and answered as registered",
    source="states picked after their answers were seen; prompts that were not those of the transcripts",
)
def _check_shown_states(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the prompts of the rows with the prompts that transcripts and seed give."""
    traces_parameters, rows = parse_replay_parameters(evidence), rows_of(evidence)
    pending = {item.id: item.prompt for item in states_of(evidence).items()}
    ordered = Counter((id, sample) for id in pending for sample in range(traces_parameters.answers))
    complete = as_ordered(ordered, Counter((row.item, row.sample) for row in rows), "answers")
    if complete.status != "PASS":
        return complete
    wrong = [{"state": row.item, "sample": row.sample} for row in rows if row.prompt != pending[row.item]]
    message = f"{len(wrong)} of {plural(len(rows), 'answer')} to a state other than their row names"
    return unless(
        wrong[:_SHOWN], message, f"{len(pending)} states, {traces_parameters.answers} answers to each", repairable=False
    )


@CHECKS.add(
    "traces.pairs",
    "The pairs follow from the answers",
    source="pairs that no one agreed on; provenance that was lost or improved on the way",
)
def _check_pairs(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Make the pairs again from the raw answers, with whose outputs they are."""
    preferences, pairs = _recompute_pairs(evidence), list(_read_pairs(evidence))
    if pairs != preferences:
        wrong = tuple(
            {"chosen": preference.chosen, "rejected": preference.rejected}
            for preference in pairs
            if preference not in preferences
        )
        message = f"{len(pairs)} pairs, {len(preferences)} follow from the answers; {len(wrong)} of them do not"
        return CheckOutcome("FAIL", message, float(len(wrong)), wrong[:_SHOWN], repairable=False)
    return CheckOutcome(
        "PASS", f"all {len(preferences)} pairs follow from the answers, and no others", float(len(preferences))
    )
