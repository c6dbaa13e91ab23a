"""Compute again what a gate decided: metrics, checks, packet criteria and decision, from the stored raw rows.

When the measuring code is another than the one that measured then (its digest is in the metric set), metrics
and checks are not compared and the audit says so; the decision is always compared, because it is a function
of the stored packet and verdict alone.
"""

from __future__ import annotations

from pathlib import Path

from reviews.checks import run_checks
from reviews.collect import find, gather, registered_spec
from reviews.grants import opened_by
from reviews.measure import measure, measuring_code
from reviews.settle import settle
from reviews.store import Store
from reviews.trail import Recorded
from specs.errors import EvidenceMissing, PeergateError
from specs.metrics import MetricSet
from specs.verdicts import Decision, Packet, Verdict


def rederive(run: Path, entries: list[Recorded], store: Store, damage: list[str], notes: list[str]) -> int:
    """Derive every decided attempt again; append what differs to ``damage``. Returns how many were derived."""
    count = 0
    for recorded in entries:
        if recorded.entry.kind != "decision":
            continue
        where = f"entry {recorded.entry.seq} (decision {recorded.entry.key.removeprefix('decision/')})"
        try:
            if recorded.body["stage"] is not None:
                _attempt(run, entries, store, recorded, where, damage, notes)
            _decision(entries, store, recorded, where, damage)
            count += 1
        except PeergateError as error:
            damage.append(f"{where}: cannot be derived again: {error.message}")
        except (ValueError, KeyError, TypeError) as error:
            damage.append(f"{where}: cannot be derived again: {type(error).__name__}: {str(error).splitlines()[0]}")
    return count


def _attempt(
    run: Path,
    entries: list[Recorded],
    store: Store,
    decision: Recorded,
    where: str,
    damage: list[str],
    notes: list[str],
) -> None:
    """Compare metrics and checks of one attempt."""
    stage, attempt = decision.body["stage"], decision.body["attempt"]
    evidence = gather(run, entries, store, stage, attempt)
    measured = find(entries, f"metrics/{stage}.{attempt}")
    checked = find(entries, f"checks/{stage}.{attempt}")
    if measured is None or checked is None:
        damage.append(f"{where}: was decided without metrics or checks")
        return
    recorded_set: MetricSet | None = None
    if measured.body["metrics"]:
        recorded_set = MetricSet.model_validate_json(store.get(measured.body["metrics"]))
    if measured.body["code"] != measuring_code():
        notes.append(f"{where}: was measured by other code ({measured.body['code']}); metrics and checks not compared")
        return
    try:
        again: MetricSet | None = measure(evidence)
    except EvidenceMissing:
        again = None
    if again != recorded_set:
        damage.append(f"{where}: the metrics computed from the raw rows are not the recorded ones{_which(again, recorded_set)}")
    found = {result.id: result.status for result in run_checks(evidence, again)}
    told = dict(checked.body["summary"])
    for name in sorted(found.keys() | told.keys()):
        if found.get(name) != told.get(name):
            damage.append(f"{where}: check {name} is {found.get(name)}, recorded as {told.get(name)}")


def _which(again: MetricSet | None, recorded: MetricSet | None) -> str:
    if again is None or recorded is None:
        return f" ({'none' if again is None else 'some'} now, {'none' if recorded is None else 'some'} then)"
    names = sorted(again.metrics.keys() | recorded.metrics.keys())
    differing = [name for name in names if again.metrics.get(name) != recorded.metrics.get(name)]
    return f" ({', '.join(differing)})" if differing else ""


def _decision(entries: list[Recorded], store: Store, recorded: Recorded, where: str, damage: list[str]) -> None:
    """Compare the decision and what it opens."""
    resolved, _ = registered_spec(entries, store)
    told = Decision.model_validate_json(store.get(recorded.body["decision"]))
    packet = Packet.model_validate_json(store.get(told.packet))
    verdict = Verdict.model_validate_json(store.get(told.verdict))
    again = settle(resolved, packet, verdict, recorded.body["attempt"])
    if again != told:
        damage.append(f"{where}: packet and verdict give '{again.outcome}', recorded is '{told.outcome}'")
    if recorded.body["outcome"] != told.outcome or list(told.reasons) != recorded.body["reasons"]:
        damage.append(f"{where}: the entry does not say what the stored decision says")
    opens = opened_by(resolved, recorded.body["stage"], recorded.body["attempt"], told.outcome)
    if opens != recorded.body["opens"]:
        damage.append(f"{where}: opens {recorded.body['opens']}, but '{told.outcome}' opens {opens}")
