"""The audit of what reviewers looked up: answers follow from the evidence, and verdicts cite what was answered."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reviews.audit.metric_lines import parts_of
from reviews.evidence.gather import gather
from reviews.evidence.readable_evidence import EvidenceBrowser, Texts
from reviews.evidence.registered_evidence import find, registered_spec
from reviews.history.history import History
from reviews.requests.kept_texts import KeptTexts
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from specs.system.strict_json import strings_in
from specs.trail.requested_review import LOOKS, AskedEntry


def lookup_damage(
    run: Path, entries: Sequence[RecordedEntry], store: Store, stage: str, attempt: int, *, is_design: bool
) -> Iterator[str]:
    """Carry out again what reviewers of an attempt looked up, and compare it with what their verdicts name."""
    at = {"stage": stage, "attempt": attempt}
    of_attempt = [entry for entry in entries if entry.raw.items() >= at.items()]
    looks = [value for value in of_attempt if value.kind == "look"]
    if looks:
        packet = find(entries, f"packet/{stage}.{attempt}")
        then = entries[: packet.seq] if packet else entries
        resolved, _ = registered_spec(then, store)
        evidence = None if is_design else gather(run, History(then, store), stage, attempt)
        shelf = EvidenceBrowser(resolved, store, evidence, parts_of)
        yield from _answered_otherwise(looks, shelf, store)
    for judged in (value for value in of_attempt if value.kind == "verdict"):
        same = {name: judged.raw[name] for name in ("packet", "reviewer")}
        yield from cited_damage(entries[: judged.seq], store, judged, same)


def request_damage(
    entries: Sequence[RecordedEntry], store: Store, asked_entry: AskedEntry, answered: RecordedEntry | None
) -> Iterator[str]:
    """Carry out again what the reviewer of a request looked up, and compare it with what its answer names."""
    same = {"stage": LOOKS, "attempt": asked_entry.number, "packet": asked_entry.read, "reviewer": asked_entry.reviewer}
    looks = [entry for entry in entries if entry.kind == "look" and entry.raw.items() >= same.items()]
    yield from _answered_otherwise(looks, KeptTexts(asked_entry, store), store)
    if answered is not None:
        yield from cited_damage(entries[: answered.seq], store, answered, same)


def _answered_otherwise(looks: Sequence[RecordedEntry], texts: Texts, store: Store) -> Iterator[str]:
    for look in looks:
        body = look.raw
        again = texts.answer(body["tool"], store.get(body["arguments"]).decode(), body["most"])
        if (again.text.encode(), again.is_error) != (store.get(body["answer"]), body["is_error"]):
            yield f"what a reviewer looked up in {look.key} has another answer"


def cited_damage(
    before: Sequence[RecordedEntry], store: Store, judged: RecordedEntry, same: Mapping[str, Any]
) -> Iterator[str]:
    """Compare what a verdict or an answer names with the ``look`` entries before it, which say the ``same``."""
    body = judged.raw
    sent = list(strings_in(json.loads(store.get(body["request"])))) if body.get("looked") and body["request"] else []
    for value in body.get("looked", ()):
        look = find(before, value["entry"])
        if look is None or look.kind != "look" or not look.raw.items() >= same.items():
            yield f"{judged.key} cites {value['entry']}, which its reviewer did not look up"
        elif look.raw["answer"] != value["answer"]:
            yield f"{judged.key} cites another answer than {value['entry']} holds"
        elif body["request"] and not any(store.get(value["answer"]).decode() in text for text in sent):
            yield f"the body that {judged.key} names does not hold the answer of {value['entry']}"
