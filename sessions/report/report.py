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
from reviews.evidence.gather import accepted_attempt, evaluations, find, is_in_force, registered_spec
from reviews.evidence.row_reader import read_rows
from reviews.gate.conditions import obligations
from reviews.gate.human_answers import is_override
from reviews.reviewers.checklist import NOT_JUDGED
from reviews.trail.envelope import Recorded
from reviews.trail.recorded_code import code_lines
from reviews.trail.store import Store, write_durably
from reviews.trail.tables.open_table import read_entries
from sessions.diagnosis import curve_plots
from sessions.diagnosis.diagnosis import Diagnosis
from sessions.diagnosis.diagnosis import recorded as diagnosed
from sessions.money import ledger
from sessions.report import plots, transcript
from sessions.report.next_steps import answers_to, remedies
from sessions.report.overview import when
from sessions.report.page_result import UNREADABLE
from sessions.report.remarks import critic_in_words, trained_by_scripts
from sessions.report.result import (
    checks_of,
    comparison_of,
    done_by_person,
    not_replayed,
    not_witnessed,
    question,
    reasons_of,
    replayed,
    result_in_words,
    result_of,
    why_it_ended,
    witness_time,
    witnessed,
)
from sessions.report.samples.compared_arms import Arms, arms_of, by_kind, examples_of
from sessions.report.template import template
from sessions.report.timeline import interruptions
from sessions.run.final_model import final_model
from sessions.run.run_layout import STORE, TRAIL
from specs import markdown
from specs.digests import canonical_bytes, digest_file
from specs.errors import AuditDamage, EvidenceMissing, PeergateError
from specs.masking import Masker, current, forms_only
from specs.session.thresholds import Thresholds
from specs.stages.registry import kind_of
from specs.text import one_line, plain
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
    trained = [curve_plots.Drawn(one.stage, one.attempt, one.curves, one.marks()) for one in _trained(entries, store)]
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


def render(folder: Path, entries: list[Recorded], store: Store, written: Recorded) -> dict[str, bytes]:
    """Return the texts of a report as trail and store give them, by path. Its entry, ``written``, names the plots.

    Raises:
        EvidenceMissing: the store lacks something that the report is made from.
        AuditDamage: no report can be made from this trail and store.
    """
    until_then = entries[: written.body.get("entries") or written.entry.seq]
    try:
        data, arms = _data(folder, until_then, store, written.body["outcome"])
        data["plots"] = plots.recorded(written.body["files"], FINAL)
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
    data: dict[str, Any], arms: Arms | None, entries: Sequence[Recorded], store: Store, masker: Masker
) -> dict[str, bytes]:
    """Return every file of a report but its plots, by name: the same data gives the same bytes."""
    data = masker.value(data)
    texts = {
        "report.json": json.dumps(json.loads(canonical_bytes(data)), indent=2, ensure_ascii=False),
        "report.md": as_markdown(data, examples_of(arms), masker),
        transcript.MARKDOWN: transcript.rendered(entries, store, masker),
    }
    return {name: text.encode() for name, text in texts.items() if text}


def _data(run: Path, entries: list[Recorded], store: Store, outcome: str) -> tuple[dict[str, Any], Arms | None]:
    """Return the data of a report without its plots, and the judged rows of both arms."""
    resolved, registered = registered_spec(entries, store)
    session = entries[0].entry.session
    limits = resolved.spec.thresholds
    stages = [stage_of(entries, store, stage.name, stage.kind, limits) for stage in resolved.spec.stages]
    arms = arms_of(run, entries, store, resolved)
    asked = question(entries) if outcome == WAITING else None
    comparison = comparison_of(entries, store, resolved)
    balance = ledger.balance_of(entries, resolved.spec.budget)
    model = find(entries, "model")
    verdicts = (one.body["verdict"] for one in reversed(entries) if one.entry.kind == "verdict")
    judged = next(verdicts, None)
    # *retry* has a design judged again.
    designs = sum(one.entry.kind == "decision" and one.body["stage"] is None for one in entries)
    data: dict[str, Any] = {
        "schema_version": 1,
        "session": session,
        "outcome": outcome,
        "result": result_of(asked) if asked else result_in_words(entries, store, resolved, outcome, comparison),
        "why": reasons_of(asked) if asked else why_it_ended(entries, store, outcome) if outcome != "approve" else [],
        "answers": [way.as_json() for way in answers_to(entries, asked, session, store, resolved)] if asked else [],
        "remedies": [each._asdict() for each in remedies(entries, store)] if asked or outcome == "reject" else [],
        "objective": resolved.spec.objective,
        "registration": registered,
        "analysis": resolved.spec.analysis.model_dump(mode="json"),
        "heldout": resolved.spec.heldout.digest,
        "model": {name: model.body[name] for name in ("source", "kind", "digest")} if model else None,
        "code": code_lines(entries, store),
        "plugins": [f"{what}: {identity}" for what, identity in resolved.plugins.items()],
        "scripts": trained_by_scripts(entries, store, resolved),
        "builder": resolved.spec.builder.vendor,
        "reviewer": ", ".join(one.vendor for one in resolved.spec.reviewers()),
        "not_judged": list(Verdict.model_validate(store.get_value(judged)).not_judged if judged else NOT_JUDGED),
        "design": gate_of(entries, store, "design", designs),
        "comparison": comparison,
        "witnessed": witnessed(
            entries, store, [stage.name for stage in resolved.spec.stages if not kind_of(stage).replayed]
        ),
        "replayed": witnessed(entries, store, replayed(resolved.spec)),
        "not_replayed": not_replayed(entries, resolved.spec),
        "not_witnessed": not_witnessed(entries, store, resolved.spec),
        "witness_time": witness_time(entries),
        "stages": [stage for stage in stages if stage["attempts"]],
        "diagnosis": [one.as_json(curves=False) for one in _trained(entries, store)],
        "not_reached": [stage["stage"] for stage in stages if not stage["attempts"]],
        "evaluations_of_heldout": evaluations(entries, resolved),
        "interruptions": [
            {"at": when(one), "entry": one.entry.seq, "what": what} for one, what in interruptions(entries)
        ],
        "people": [_person(one) for one in entries if one.entry.kind in _BY_PEOPLE],
        "overrides": sum(is_override(one) for one in entries),
        "conditions": [
            {"id": one.id, "stage": one.condition.stage, "text": one.condition.text, "state": one.state}
            for one in obligations(entries, int(entries[-1].entry.time_ns))
        ],
        "exploratory": any(is_in_force(one) and one.body["exploratory"] for one in entries),
        "accuracy_by_kind": by_kind(arms),
        "spent_usd": round(balance.spent_usd, 6),
        "max_cost_usd": resolved.spec.budget.max_cost_usd,
        "hours": round(balance.hours, 4),
        "started": when(entries[0]),
        "trail": {"entries": len(entries), "head": entries[-1].digest},
        "verify": f"peergate audit verify {session}",
        "left": left._asdict() if (left := final_model(entries, resolved.spec)) else None,
        "plots": [],
    }
    if outcome != WAITING:
        data["scorecard"] = scorecard_of(entries, store).as_json()
    if resolved.spec.companions:
        data["companions"] = {name: one.model_dump(mode="json") for name, one in resolved.spec.companions.items()}
    if resolved.spec.criteria:
        data["acceptance"] = acceptance_of(entries, store).as_json()
    return data, arms


def as_markdown(data: dict[str, Any], examples: list[dict[str, Any]], masker: Masker) -> str:
    """Return the report for people: what failed first, what passed folded, digests at the end."""
    gates = _gates(data)
    shown = data | {"gates": gates, "open_checks": [row for one in gates for row in one["open"]]}
    return masker.text(_template().render(report=shown, examples=examples))


_QUIET = ("PASS", "NOT_APPLICABLE")


def _gates(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every gate with the attempt it judged, in order, and what in it did not pass."""
    found: list[dict[str, Any]] = [{"place": "design", "kind": "", "gate": data["design"], "attempt": None}]
    for stage in data["stages"]:
        for attempt in stage["attempts"]:
            place = f"{stage['stage']}.{attempt['attempt']}"
            found.append({"place": place, "kind": stage["kind"], "gate": attempt["gate"], "attempt": attempt})
    for one in found:
        checks = one["gate"]["checks"] if one["gate"] else ()
        one["open"] = [{"place": one["place"], **check} for check in checks if check["status"] not in _QUIET]
        unmet = one["gate"] and (
            any(not each["met"] for each in one["gate"]["criteria"])
            or any(each["status"] != "supported" for each in one["gate"]["claims"])
        )
        one["said"] = bool(one["gate"]) and (one["gate"]["outcome"] != "approve" or bool(unmet))
    return [one for one in found if one["gate"] or one["attempt"]]


@cache
def _template() -> Template:
    filters = {"cell": markdown.cell, "code": markdown.code, "html": markdown.html, "written": markdown.Markup}
    return template("report.md.j2", filters, finalize=markdown.finalize)


_BY_PEOPLE = ("human", "override", "amendment", "retraction")


def _person(one: Recorded) -> dict[str, Any]:
    """Return what a person did in one sentence, with their name and reason."""
    body = one.body
    return {
        "kind": one.entry.kind,
        "what": done_by_person(one),
        "by": plain(body["by"], 100),
        "reason": plain(body["reason"], 1000),
        "override": is_override(one),
        "expires": body.get("expires"),
        "at": when(one),
    }


def gate_of(entries: Sequence[Recorded], store: Store, stage: str, attempt: int) -> dict[str, Any] | None:
    """Return what one gate saw and decided."""
    decided = find(entries, f"decision/{stage}.{attempt}")
    if decided is None:
        return None
    packet_entry, judged = find(entries, f"packet/{stage}.{attempt}"), find(entries, f"verdict/{stage}.{attempt}")
    packet = Packet.model_validate(store.get_value(packet_entry.body["packet"])) if packet_entry else None
    return {
        "outcome": decided.body["outcome"],
        "reasons": decided.body["reasons"],
        "required": decided.body["required"],
        "checks": [
            {"id": one.id, "title": one.title, "status": one.status, "blocking": one.blocking, "detail": one.detail}
            for one in checks_of(entries, store, stage, attempt)
        ],
        "criteria": [
            {"criterion": str(one.criterion), "value": one.value, "met": one.met, "hypothesis": one.hypothesis}
            for one in (packet.criteria if packet else ())
        ],
        "claims": [one.model_dump(mode="json") for one in (packet.claims if packet else ())],
        "packet": packet_entry.body["packet"] if packet_entry else None,
        "verdict": judged.body["verdict"] if judged else None,
        "decision": decided.body["decision"],
    }


_JOB = {"exit": "ended", "lost": "lost", "launch": "launched"}


def stage_of(entries: Sequence[Recorded], store: Store, name: str, kind: str, limits: Thresholds) -> dict[str, Any]:
    """Return every attempt of a stage, failed ones included."""
    session = entries[0].entry.session
    attempts: list[dict[str, Any]] = []
    for plan in (one for one in entries if one.entry.kind == "plan" and one.body["stage"] == name):
        number = plan.body["attempt"]
        key = f"{session}.{name}.{number}"
        measured = find(entries, f"metrics/{name}.{number}")
        digest = measured.body["metrics"] if measured else None
        metrics: dict[str, Any] = store.get_value(digest)["metrics"] if digest else {}
        settled = find(entries, f"settle/{key}")
        attempts.append(
            {
                "attempt": number,
                "changes": plan.body["changes"],
                "job": next((word for kind, word in _JOB.items() if find(entries, f"{kind}/{key}")), "not launched"),
                "seconds": settled.body["seconds"] if settled else None,
                "usd": settled.body["usd"] if settled else None,
                "metrics_digest": digest,
                "metrics": metrics,
                "critic": critic_in_words(kind, metrics, limits),
                "gate": gate_of(entries, store, name, number),
            }
        )
    return {"stage": name, "kind": kind, "accepted_attempt": accepted_attempt(entries, name), "attempts": attempts}


def _trained(entries: Sequence[Recorded], store: Store) -> list[Diagnosis]:
    return diagnosed(entries, store, registered_spec(entries, store)[0])


def _losses(entries: Sequence[Recorded], store: Store) -> dict[str, list[float]]:
    """Return the step losses of each training attempt, from its raw rows."""
    return {f"{stage}, attempt {number}": values for (stage, number), values in steps_of(entries, store).items()}


def steps_of(entries: Sequence[Recorded], store: Store, name: str = "loss") -> dict[tuple[str, int], list[float]]:
    """Return a column of the steps of each training attempt, from its raw rows, by stage and attempt."""
    resolved, _ = registered_spec(entries, store)
    training = {stage.name for stage in resolved.spec.stages if kind_of(stage).trains}
    found: dict[tuple[str, int], list[float]] = {}
    for one in entries:
        if one.entry.kind == "exit" and one.body["stage"] in training and "rows" in one.body["outputs"]:
            stage, path = one.body["stage"], store.path(one.body["outputs"]["rows"]["digest"])
            # Rows that cannot be read were no evidence either, so they have no curve.
            with suppress(EvidenceMissing):
                rows = read_rows(path, kind_of(resolved.spec.stage(stage)).rows["rows"], "steps")
                values = [getattr(row, name, None) for row in rows]
                found[stage, one.body["attempt"]] = [value for value in values if value is not None]
    return found


def curves_of(entries: Sequence[Recorded], store: Store) -> list[dict[str, Any]]:
    """Return the loss and the learning rate of each training attempt, from its raw rows."""
    found: list[dict[str, Any]] = []
    for name, title in (("loss", "loss, nats per token"), ("learning_rate", "learning rate")):
        for (stage, attempt), values in steps_of(entries, store, name).items():
            drawn = plots.curve(values, title)
            if drawn is not None:
                found.append(drawn | {"stage": stage, "attempt": attempt})
    return sorted(found, key=lambda one: (one["stage"], one["attempt"]))
