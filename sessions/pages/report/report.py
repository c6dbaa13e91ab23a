"""The report of a session: JSON for machines, Markdown for people, plots for both.

Every number comes from a metric set in the store or is counted from the trail; statements of jobs and builders are not
copied. The trail records the digest of each file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError

from reviews.acceptance.criterion_state import acceptance_of
from reviews.acceptance.scorecard import scorecard_of
from reviews.evidence.gather import accepted_attempt, evaluations, find, registered_spec
from reviews.evidence.row_reader import read_rows
from reviews.history.history import History, is_in_force
from reviews.history.people import is_override, obligations
from reviews.reviewers.checklist import NOT_JUDGED
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store, write_durably
from reviews.trail.recorded_code import code_lines
from reviews.trail.tables.open_table import read_entries
from sessions.pages.diagnosis import curve_plots
from sessions.pages.diagnosis.diagnosis import Diagnosis
from sessions.pages.diagnosis.diagnosis import diagnose_from_trail as diagnosed
from sessions.pages.overview import when
from sessions.pages.report import plots, transcript
from sessions.pages.report.next_steps import answers_to, remedies
from sessions.pages.report.page_result import UNREADABLE
from sessions.pages.report.remarks import critic_in_words, trained_by_scripts
from sessions.pages.report.samples.compared_arms import Arms, arms_of, by_kind, examples_of
from sessions.pages.report.template import template
from sessions.pages.report.timeline import interruptions
from sessions.pages.result import (
    checks_of,
    comparison_of,
    count_witnessed_rows,
    done_by_person,
    list_replayed_stages,
    not_replayed,
    not_witnessed,
    question,
    reasons_of,
    result_in_words,
    result_of,
    why_it_ended,
    witness_time,
)
from sessions.run.final_model import final_model
from sessions.run.money import ledger
from sessions.run.run_layout import STORE, TRAIL
from specs.session.thresholds import Thresholds
from specs.stages.registry import kind_of
from specs.system import markdown
from specs.system.digests import canonical_bytes, digest_file
from specs.system.errors import AuditDamage, EvidenceMissing, PeergateError
from specs.system.masking import Masker, current, forms_only
from specs.system.text import one_line, plain
from specs.trail.verdict import Packet, Verdict

FINAL, INTERIM = "report", "interim"
"""Folders in the run folder: the recorded report, and the report of a session that waits for money."""
REPORT_JSON = f"{FINAL}/report.json"
REPORT_MARKDOWN = f"{FINAL}/report.md"
WAITING = "waiting"
"""The outcome in an interim report."""


def write(run: Path, trail: str, store_name: str, outcome: str, folder: str = FINAL) -> dict[str, Any]:
    """Write the report of a session that ends with ``outcome``; returns the body of its entry in the trail."""
    entries, store = read_entries(run / trail), Store(run / store_name)
    data, arms = _data(run, entries, store, outcome)
    trained = [
        curve_plots.AttemptCurves(diagnosis.stage, diagnosis.attempt, diagnosis.curves, diagnosis.marks())
        for diagnosis in _diagnose_training(entries, store)
    ]
    data["plots"] = plots.draw(run / folder, data, _losses(entries, store), trained)
    texts = _texts(data, arms, entries, store, current())
    for name, text in texts.items():
        write_durably(run / folder / name, text)
    files = {f"{folder}/{name}": digest_file(run / folder / name) for name in (*texts, *data["plots"])}
    return {"files": files, "entries": len(entries), "outcome": outcome}


def rendered_again(run: Path) -> dict[str, bytes]:
    """Return the texts of a run folder's report as :func:`render` does; empty if the trail records no report."""
    entries = read_entries(run / TRAIL)
    written = find(entries, "report")
    return {} if written is None else render(run, entries, Store(run / STORE), written)


def render(folder: Path, entries: list[RecordedEntry], store: Store, written: RecordedEntry) -> dict[str, bytes]:
    """Return the texts of a report as trail and store give them, by path. Its entry, ``written``, names the plots.

    Raises:
        EvidenceMissing: the store lacks something that the report is made from.
        AuditDamage: no report can be made from this trail and store.
    """
    until_then = entries[: written.raw["entries"]]
    try:
        data, arms = _data(folder, until_then, store, written.raw["outcome"])
        data["plots"] = plots.select_plots(written.raw["files"], FINAL)
        # Secrets that only this process knows must not change the result.
        texts = _texts(data, arms, until_then, store, forms_only())
    except PeergateError:
        raise
    except (*UNREADABLE, TemplateError) as error:
        raise AuditDamage(f"the report cannot be rendered: {one_line(str(error), 200)}", where=str(folder)) from error
    return {f"{FINAL}/{name}": text for name, text in texts.items()}


def told_so_far(run: Path, trail: str, store_name: str) -> tuple[dict[str, Any], str]:
    """Return the report of a waiting session as data and Markdown; raises EvidenceMissing if it asks nothing."""
    entries, store = read_entries(run / trail), Store(run / store_name)
    if question(entries) is None:
        raise EvidenceMissing(f"session '{run.name}' asks nothing of a person", where=str(run))
    data, arms = _data(run, entries, store, WAITING)
    return data, as_markdown(data, examples_of(arms), current())


def _texts(
    data: dict[str, Any], arms: Arms | None, entries: Sequence[RecordedEntry], store: Store, masker: Masker
) -> dict[str, bytes]:
    """Return every file of a report but its plots, by name: the same data gives the same bytes."""
    data = masker.value(data)
    texts = {
        "report.json": json.dumps(json.loads(canonical_bytes(data)), indent=2, ensure_ascii=False),
        "report.md": as_markdown(data, examples_of(arms), masker),
        transcript.MARKDOWN: transcript.render_transcript(entries, store, masker),
    }
    return {name: text.encode() for name, text in texts.items() if text}


def _data(run: Path, entries: list[RecordedEntry], store: Store, outcome: str) -> tuple[dict[str, Any], Arms | None]:
    """Return the data of a report without its plots, and the judged rows of both arms."""
    resolved, registered = registered_spec(entries, store)
    session = entries[0].session
    limits = resolved.spec.thresholds
    stages = [stage_of(entries, store, stage.name, stage.kind, limits) for stage in resolved.spec.stages]
    arms = arms_of(run, entries, store, resolved)
    recorded_entry = question(entries) if outcome == WAITING else None
    comparison = comparison_of(entries, store, resolved)
    balance = ledger.balance_of(entries, resolved.spec.budget)
    model = find(entries, "model")
    verdicts = (entry.raw["verdict"] for entry in reversed(entries) if entry.kind == "verdict")
    judged = next(verdicts, None)
    # *retry* has a design judged again.
    designs = sum(entry.kind == "decision" and entry.raw["stage"] is None for entry in entries)
    data: dict[str, Any] = {
        "schema_version": 1,
        "session": session,
        "outcome": outcome,
        "result": result_of(recorded_entry)
        if recorded_entry
        else result_in_words(entries, store, resolved, outcome, comparison),
        "why": reasons_of(recorded_entry)
        if recorded_entry
        else why_it_ended(entries, store, outcome)
        if outcome != "approve"
        else [],
        "answers": [way.as_json() for way in answers_to(entries, recorded_entry, session, store, resolved)]
        if recorded_entry
        else [],
        "remedies": [each._asdict() for each in remedies(entries, store)]
        if recorded_entry or outcome == "reject"
        else [],
        "objective": resolved.spec.objective,
        "registration": registered,
        "analysis": resolved.spec.analysis.model_dump(mode="json"),
        "heldout": resolved.spec.heldout.digest,
        "model": {name: model.raw[name] for name in ("source", "kind", "digest")} if model else None,
        "code": code_lines(entries, store),
        "plugins": [f"{what}: {identity}" for what, identity in resolved.plugins.items()],
        "scripts": trained_by_scripts(entries, store, resolved),
        "builder": resolved.spec.builder.vendor,
        "reviewer": ", ".join(reviewer.vendor for reviewer in resolved.spec.reviewers()),
        "not_judged": list(Verdict.model_validate(store.get_value(judged)).not_judged if judged else NOT_JUDGED),
        "design": gate_of(entries, store, "design", designs),
        "comparison": comparison,
        "witnessed": count_witnessed_rows(
            entries, store, [stage.name for stage in resolved.spec.stages if not kind_of(stage).replay_job]
        ),
        "replayed": count_witnessed_rows(entries, store, list_replayed_stages(resolved.spec)),
        "not_replayed": not_replayed(entries, resolved.spec),
        "not_witnessed": not_witnessed(entries, store, resolved.spec),
        "witness_time": witness_time(entries),
        "stages": [stage for stage in stages if stage["attempts"]],
        "diagnosis": [diagnosis.as_json(curves=False) for diagnosis in _diagnose_training(entries, store)],
        "not_reached": [stage["stage"] for stage in stages if not stage["attempts"]],
        "evaluations_of_heldout": evaluations(History(entries, store)),
        "interruptions": [
            {"at": when(recorded_entry), "entry": recorded_entry.seq, "what": what}
            for recorded_entry, what in interruptions(entries)
        ],
        "people": [_person(entry) for entry in entries if entry.kind in _BY_PEOPLE],
        "overrides": sum(is_override(entry) for entry in entries),
        "conditions": [
            {
                "id": obligation.id,
                "stage": obligation.condition.stage,
                "text": obligation.condition.text,
                "state": obligation.state,
            }
            for obligation in obligations(History(entries), entries[-1].time_ns)
        ],
        "exploratory": any(is_in_force(entry) and entry.raw["exploratory"] for entry in entries),
        "accuracy_by_kind": by_kind(arms),
        "spent_usd": round(balance.spent_usd, 6),
        "max_cost_usd": resolved.spec.budget.max_cost_usd,
        "hours": round(balance.hours, 4),
        "started": when(entries[0]),
        "trail": {"entries": len(entries), "head": entries[-1].digest},
        "verify": f"peergate audit verify {session}",
        "left": final._asdict() if (final := final_model(entries, resolved.spec)) else None,
        "plots": [],
    }
    if outcome != WAITING:
        data["scorecard"] = scorecard_of(entries, store).as_json()
    if resolved.spec.companions:
        data["companions"] = {
            name: companion.model_dump(mode="json") for name, companion in resolved.spec.companions.items()
        }
    if resolved.spec.criteria:
        data["acceptance"] = acceptance_of(entries, store).as_json()
    return data, arms


def as_markdown(data: dict[str, Any], examples: list[dict[str, Any]], masker: Masker) -> str:
    """Return the report for people: what failed first, what passed folded, digests at the end."""
    gates = _gates(data)
    visible = data | {"gates": gates, "open_checks": [row for gate in gates for row in gate["open"]]}
    return masker.text(_template().render(report=visible, examples=examples))


_QUIET = ("PASS", "NOT_APPLICABLE")


def _gates(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every gate with the attempt it judged, in order, and what in it did not pass."""
    results: list[dict[str, Any]] = [{"place": "design", "kind": "", "gate": data["design"], "attempt": None}]
    for stage in data["stages"]:
        for attempt in stage["attempts"]:
            place = f"{stage['stage']}.{attempt['attempt']}"
            results.append({"place": place, "kind": stage["kind"], "gate": attempt["gate"], "attempt": attempt})
    for value in results:
        checks = value["gate"]["checks"] if value["gate"] else ()
        value["open"] = [{"place": value["place"], **check} for check in checks if check["status"] not in _QUIET]
        unmet = value["gate"] and (
            any(not each["met"] for each in value["gate"]["criteria"])
            or any(each["status"] != "supported" for each in value["gate"]["claims"])
        )
        value["said"] = bool(value["gate"]) and (value["gate"]["outcome"] != "approve" or bool(unmet))
    return [value for value in results if value["gate"] or value["attempt"]]


@cache
def _template() -> Template:
    filters = {"cell": markdown.cell, "code": markdown.code, "html": markdown.html, "written": markdown.Markup}
    return template("report.md.j2", filters, finalize=markdown.finalize)


_BY_PEOPLE = ("human", "override", "amendment", "retraction")


def _person(recorded_entry: RecordedEntry) -> dict[str, Any]:
    """Return what a person did in one sentence, with their name and reason."""
    body = recorded_entry.raw
    return {
        "kind": recorded_entry.kind,
        "what": done_by_person(recorded_entry),
        "by": plain(body["by"], 100),
        "reason": plain(body["reason"], 1000),
        "override": is_override(recorded_entry),
        "expires": body.get("expires"),
        "at": when(recorded_entry),
    }


def gate_of(entries: Sequence[RecordedEntry], store: Store, stage: str, attempt: int) -> dict[str, Any] | None:
    """Return what one gate saw and decided."""
    decided = find(entries, f"decision/{stage}.{attempt}")
    if decided is None:
        return None
    packet_entry, judged = find(entries, f"packet/{stage}.{attempt}"), find(entries, f"verdict/{stage}.{attempt}")
    packet = Packet.model_validate(store.get_value(packet_entry.raw["packet"])) if packet_entry else None
    return {
        "outcome": decided.raw["outcome"],
        "reasons": decided.raw["reasons"],
        "required": decided.raw["required"],
        "checks": [
            {
                "id": check_result.id,
                "title": check_result.title,
                "status": check_result.status,
                "blocking": check_result.blocking,
                "detail": check_result.detail,
            }
            for check_result in checks_of(entries, store, stage, attempt)
        ],
        "criteria": [
            {
                "criterion": str(criterion.criterion),
                "value": criterion.value,
                "met": criterion.met,
                "hypothesis": criterion.hypothesis,
            }
            for criterion in (packet.criteria if packet else ())
        ],
        "claims": [claim.model_dump(mode="json") for claim in (packet.claims if packet else ())],
        "packet": packet_entry.raw["packet"] if packet_entry else None,
        "verdict": judged.raw["verdict"] if judged else None,
        "decision": decided.raw["decision"],
    }


_JOB = {"exit": "ended", "lost": "lost", "launch": "launched"}


def stage_of(
    entries: Sequence[RecordedEntry], store: Store, name: str, kind: str, limits: Thresholds
) -> dict[str, Any]:
    """Return every attempt of a stage, failed ones included."""
    session = entries[0].session
    attempts: list[dict[str, Any]] = []
    for plan in (entry for entry in entries if entry.kind == "plan" and entry.raw["stage"] == name):
        number = plan.raw["attempt"]
        key = f"{session}.{name}.{number}"
        measured = find(entries, f"metrics/{name}.{number}")
        digest = measured.raw["metrics"] if measured else None
        metrics: dict[str, Any] = store.get_value(digest)["metrics"] if digest else {}
        settled = find(entries, f"settle/{key}")
        attempts.append(
            {
                "attempt": number,
                "changes": plan.raw["changes"],
                "job": next((word for kind, word in _JOB.items() if find(entries, f"{kind}/{key}")), "not launched"),
                "seconds": settled.raw["seconds"] if settled else None,
                "usd": settled.raw["usd"] if settled else None,
                "metrics_digest": digest,
                "metrics": metrics,
                "critic": critic_in_words(kind, metrics, limits),
                "gate": gate_of(entries, store, name, number),
            }
        )
    return {"stage": name, "kind": kind, "accepted_attempt": accepted_attempt(entries, name), "attempts": attempts}


def _diagnose_training(entries: Sequence[RecordedEntry], store: Store) -> list[Diagnosis]:
    return diagnosed(entries, store, registered_spec(entries, store)[0])


def _losses(entries: Sequence[RecordedEntry], store: Store) -> dict[str, list[float]]:
    """Return the step losses of each training attempt, from its raw rows."""
    return {f"{stage}, attempt {number}": values for (stage, number), values in steps_of(entries, store).items()}


def steps_of(entries: Sequence[RecordedEntry], store: Store, name: str = "loss") -> dict[tuple[str, int], list[float]]:
    """Return a column of the steps of each training attempt, from its raw rows, by stage and attempt."""
    resolved, _ = registered_spec(entries, store)
    training = {stage.name for stage in resolved.spec.stages if kind_of(stage).trains}
    matching_values: dict[tuple[str, int], list[float]] = {}
    for entry in entries:
        if entry.kind == "exit" and entry.raw["stage"] in training and "rows" in entry.raw["outputs"]:
            stage, path = entry.raw["stage"], store.path(entry.raw["outputs"]["rows"]["digest"])
            # Rows that cannot be read were no evidence either, so they have no curve.
            with suppress(EvidenceMissing):
                rows = read_rows(path, kind_of(resolved.spec.stage(stage)).rows["rows"], "steps")
                values = [getattr(row, name, None) for row in rows]
                matching_values[stage, entry.raw["attempt"]] = [value for value in values if value is not None]
    return matching_values


def curves_of(entries: Sequence[RecordedEntry], store: Store) -> list[dict[str, Any]]:
    """Return the loss and the learning rate of each training attempt, from its raw rows."""
    results: list[dict[str, Any]] = []
    for name, title in (("loss", "loss, nats per token"), ("learning_rate", "learning rate")):
        for (stage, attempt), values in steps_of(entries, store, name).items():
            drawn = plots.curve(values, title)
            if drawn is not None:
                results.append(drawn | {"stage": stage, "attempt": attempt})
    return sorted(results, key=lambda value: (value["stage"], value["attempt"]))
