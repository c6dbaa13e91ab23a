"""Hostile raw rows, manifests and exit records: each must close the gate with a sentence that says what is wrong.

Rows of fourteen kinds of stages are broken in each of the forms below, at a line that the seed chooses, and go through
the real measurer, checks and decision with a reviewer who approves of everything. An attack is missed if the gate
opens, if a check breaks on it, or if an exception gets out. The healthy rows of each kind have to pass first.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.attack.outcome import Outcome
from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import run_checks
from reviews.gate.decide import decide
from reviews.gate.measurer import measure
from sessions.jobs.job_state import exit_fault, read_exit
from specs.jobs.job_records import ExitRecord
from specs.stages.base.metric import MetricSet
from specs.system.digests import digest_bytes, digest_path, digest_value
from specs.system.errors import EvidenceMissing
from specs.trail.verdict import CLOSED, Decision, Verdict
from testing.factories.critic_evidence import critic_evidence
from testing.factories.evaluation_evidence import choice_rows, choose_evidence, healthy_converse, perplexity_evidence
from testing.factories.evidence_on_disk import evidence_of, exit_of
from testing.factories.preference_evidence import dpo_evidence
from testing.factories.text_evidence import text_evidence

Lines = list[bytes]
Break = Callable[[Lines, random.Random], bytes]


def _whole(evidence: Evidence) -> Evidence:
    """Return evidence whose grant, manifest and exit record are those of its stage."""
    assert evidence.grant is not None and evidence.manifest is not None
    own: dict[str, Any] = {
        "kind": evidence.stage.kind,
        "parameters": digest_value(evidence.parameters),
        "inputs": {role: digest_path(path) for role, path in evidence.inputs.items()},
    }
    registered = {"stage": evidence.stage.name, "registration": evidence.registered}
    grant = evidence.grant.model_copy(update=own | registered)
    seen_values: dict[str, Any] = {
        "key": grant.key(),
        "effective": evidence.parameters | evidence.manifest.effective,
        "seed": evidence.parameters.get("seed", 0),
        "outputs": evidence.output_digests,
    }
    manifest = evidence.manifest.model_copy(update=own | seen_values)
    return replace(evidence, grant=grant, manifest=manifest, exit=exit_of(grant.key()))


KINDS: dict[str, Callable[[Path], Evidence]] = {
    "evaluate": lambda folder: evidence_of(folder, "base"),
    "generate": lambda folder: evidence_of(folder, "sample"),
    "sft": lambda folder: evidence_of(folder, "train"),
    "dpo": lambda folder: _whole(dpo_evidence(folder)),
    "package": lambda folder: evidence_of(folder, "ship"),
    "base_model_check": lambda folder: text_evidence(folder, "base_model_check"),
    "self_instruct": lambda folder: text_evidence(folder, "self_instruct"),
    "sample_responses": lambda folder: text_evidence(folder, "sample_responses"),
    "critique_instructions": lambda folder: critic_evidence(folder, "critique_instructions"),
    "perplexity": lambda folder: _whole(perplexity_evidence(folder)),
    "multiple_choice": lambda folder: _whole(choose_evidence(folder, choice_rows([(1.0, 2.0)] * 4))),
    "multi_turn": lambda folder: _whole(healthy_converse(folder)),
    "best_of_n": lambda folder: critic_evidence(folder, "best_of_n"),
    "revise": lambda folder: critic_evidence(folder, "revise"),
}


def _line(change: Callable[[bytes, random.Random], bytes]) -> Break:
    """Break one line, and leave the others."""

    def broken(lines: Lines, draw: random.Random) -> bytes:
        place = draw.randrange(len(lines))
        return b"".join((change(line, draw) if at == place else line) + b"\n" for at, line in enumerate(lines))

    return broken


def _file(change: Callable[[bytes], bytes]) -> Break:
    return lambda lines, _: change(b"".join(line + b"\n" for line in lines))


def _lines(change: Callable[[Lines, int], Lines]) -> Break:
    return lambda lines, draw: b"".join(line + b"\n" for line in change(lines, draw.randrange(len(lines))))


def _set_value(wanted: Callable[[Any], bool], text: str) -> Break:
    """Put a text of JSON in the place of one value that is so, wherever it is in the row."""

    def change(line: bytes, draw: random.Random) -> bytes:
        row = json.loads(line)
        places = _places(row, wanted)
        if not places:
            return line
        above, name = draw.choice(places)
        above[name] = "@here@"
        return json.dumps(row).replace('"@here@"', text, 1).encode()

    return _line(change)


def _places(value: Any, wanted: Callable[[Any], bool]) -> list[tuple[Any, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    matching_pairs: list[tuple[Any, Any]] = []
    for name, element in list(pairs):
        matching_pairs += [(value, name)] if wanted(element) else _places(element, wanted)
    return matching_pairs


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _twice(line: bytes, draw: random.Random) -> bytes:
    name, value = draw.choice(list(json.loads(line).items()))
    return line[:-1] + f", {json.dumps(name)}: {json.dumps(value)}}}".encode()


def _without(line: bytes, draw: random.Random) -> bytes:
    row = json.loads(line)
    # A field with a default may be left out; the first ones have none.
    del row[next(iter(row))]
    return json.dumps(row).encode()


FORMS: dict[str, Break] = {
    "a name twice": _line(_twice),
    "another value first under the same name": _line(
        lambda line, draw: b'{"item": "other", ' + line[1:] if b'"item"' in line else _twice(line, draw)
    ),
    "NaN": _set_value(_is_number, "NaN"),
    "Infinity": _set_value(_is_number, "Infinity"),
    "-Infinity": _set_value(_is_number, "-Infinity"),
    "a number beyond all floats": _set_value(_is_number, "1e999"),
    "a negative count": _set_value(_is_count, "-1"),
    "a very negative count": _set_value(_is_count, "-1000000000"),
    "a count beyond 2**53": _set_value(_is_count, "9007199254740993"),
    "a count of 500 digits": _set_value(_is_count, "9" * 500),
    "a count of 10000 digits": _set_value(_is_count, "9" * 10_000),
    "a fraction for a count": _set_value(_is_count, "1.5"),
    "a truth for a count": _set_value(_is_count, "true"),
    "a text for a number": _set_value(_is_number, '"1"'),
    "nothing for a number": _set_value(_is_number, "{}"),
    "a number for a text": _set_value(_is_text, "7"),
    "half of a character pair": _set_value(_is_text, '"\\ud800"'),
    "a list for a text": _set_value(_is_text, '["a"]'),
    "65 lists in each other": _set_value(_is_text, "[" * 65 + "]" * 65),
    "100000 lists in each other": _set_value(_is_text, "[" * 100_000 + "]" * 100_000),
    "100000 objects in each other": _set_value(_is_text, '{"a":' * 100_000 + "1" + "}" * 100_000),
    "a field too many": _line(lambda line, _: line[:-1] + b', "passed": true}'),
    "a field too few": _line(_without),
    "a list for a row": _line(lambda line, _: b"[" + line + b"]"),
    "a text for a row": _line(lambda line, _: json.dumps(line.decode()).encode()),
    "nothing for a row": _line(lambda _, __: b"null"),
    "half a row": _line(lambda line, _: line[: len(line) // 2]),
    "two rows on a line": _line(lambda line, _: line + line),
    "a comment behind a row": _line(lambda line, _: line + b" // fine"),
    "a comma behind a row": _line(lambda line, _: line + b","),
    "an empty line": _line(lambda line, _: line + b"\n"),
    "a line of spaces": _line(lambda line, _: line + b"\n   "),
    "a byte that is not UTF-8": _line(lambda line, _: line[:-2] + b"\xff" + line[-2:]),
    "a NUL byte": _line(lambda line, _: line + b"\x00"),
    "a line of 17 MB": _line(lambda line, _: line + b" " * (17 << 20)),
    "a byte order mark": _file(lambda data: b"\xef\xbb\xbf" + data),
    "UTF-16": _file(lambda data: data.decode().encode("utf-16")),
    "UTF-16 without a mark": _file(lambda data: data.decode().encode("utf-16-le")),
    "the same row twice": _lines(lambda lines, at: [*lines, lines[at]]),
    "every row twice": _lines(lambda lines, _: [*lines, *lines]),
    "one row in the place of another": _lines(lambda lines, at: [*lines[:at], lines[at - 1], *lines[at + 1 :]]),
    "a row of another item": _lines(
        lambda lines, at: [*lines, *(line.replace(b'"item": "', b'"item": "no ', 1) for line in lines[at : at + 1])]
    ),
    "no rows": _file(lambda _: b""),
    "an empty list": _file(lambda _: b"[]\n"),
    "one list of all rows": _file(lambda data: b"[" + b",".join(data.splitlines()) + b"]\n"),
}
"""By what is done to healthy rows."""


def run(seed: int, folder: Path) -> Outcome:
    """Attack with every form at every kind of stage."""
    return attack(seed, folder, tuple(KINDS), tuple(FORMS))


def attack(seed: int, folder: Path, kinds: tuple[str, ...], forms: tuple[str, ...]) -> Outcome:
    """Attack with some forms at some kinds of stages.

    Args:
        seed: of the lines and fields that are broken.
        folder: where files are put.
        kinds: names in :data:`KINDS`.
        forms: names in :data:`FORMS`.
    """
    outcome = Outcome()
    for kind in kinds:
        home = folder / kind
        home.mkdir(parents=True)
        evidence = KINDS[kind](home)
        if message := _opens(evidence):
            outcome.not_run = f"the healthy rows of {kind} do not pass: {message}"
            return outcome
        path = evidence.outputs["rows"]
        healthy = path.read_bytes()
        for form in forms:
            draw = random.Random(f"{seed}/{kind}/{form}")
            broken = FORMS[form](healthy.splitlines(), draw)
            if broken == healthy:
                continue
            path.write_bytes(broken)
            outcome.record(not (why := _closes(evidence)), f"{kind}: {form}, seed {seed}: {why}")
        path.unlink()
        outcome.record(not (why := _closes(evidence)), f"{kind}: no file: {why}")
        path.mkdir()
        outcome.record(not (why := _closes(evidence)), f"{kind}: a folder in the place of the file: {why}")
        shutil.rmtree(home)
    _exits(folder, outcome)
    return outcome


def _exits(folder: Path, outcome: Outcome) -> None:
    """Leave exit records that say the right thing in another form than a wrapper's."""
    home = folder / "exit"
    home.mkdir()
    log = digest_bytes(b"")
    record = ExitRecord(key="s.a.1", code=0, reason="exited", started=1.5, ended=2.0, host="here", log=log)
    right = record.canonical()
    (home / "exit.json").write_bytes(right)
    if read_exit(home) != record:
        outcome.not_run = "a healthy exit record is not read"
        return
    written = right.decode()
    for what, data in {
        "spaces": json.dumps(json.loads(right)).encode(),
        "names in another order": json.dumps(dict(reversed(json.loads(right).items())), separators=(",", ":")).encode(),
        "a line end": right + b"\n",
        "a number in another form": written.replace("1.5", "1.50").encode(),
        "an escape": written.replace("here", "h\\u0065re").encode(),
        "a default that is written out": written.replace('"log"', '"log_left_out":0,"log"').encode(),
        "a name twice": written.replace('"code":0', '"code":1,"code":0').encode(),
        "NaN": written.replace("1.5", "NaN").encode(),
        "a byte order mark": b"\xef\xbb\xbf" + right,
        "half": right[:40],
        "nothing": b"",
        "100000 lists in each other": b"[" * 100_000,
        "a megabyte": right + b" " * (1 << 20),
    }.items():
        (home / "exit.json").write_bytes(data)
        outcome.record(read_exit(home) is None and bool(exit_fault(home)), f"exit record: {what}")


def _gate(evidence: Evidence) -> tuple[Decision, list[str]]:
    """Return the decision of a gate without criteria whose reviewer approves, and what closed it or broke."""
    metrics: MetricSet | None = None
    parts: list[str] = []
    try:
        metrics = measure(evidence)
    except EvidenceMissing as error:
        parts.append(error.message)
    checks = run_checks(evidence, metrics)
    decision = decide(
        stage=evidence.stage.name,
        attempt=1,
        checks=checks,
        criteria=(),
        verdict=Verdict(reviewer="r", findings=(), recommendation="", reasoning="", risks=(), approve=True),
        packet_digest=digest_bytes(b"packet"),
        resolvable=lambda _: True,
        allowed_ranges={},
        current={},
        attempts_left=1,
    )
    return decision, parts + [
        f"{check.id}: {check.status}: {check.detail}" for check in checks if check.status in CLOSED
    ]


def _opens(evidence: Evidence) -> str:
    decision, why = _gate(evidence)
    return "" if decision.outcome == "approve" and not why else "; ".join([decision.outcome, *why])


def _closes(evidence: Evidence) -> str:
    """Say in which way an attack got through; nothing where the gate is closed with a sentence."""
    try:
        decision, why = _gate(evidence)
        decision.canonical()
    except Exception as error:
        return f"{type(error).__name__} got out: {str(error)[:200]}"
    if decision.outcome in ("approve", "null"):
        return "the gate opened"
    broke = [text for text in why if ": ERROR: " in text]
    return broke[0][:300] if broke else ""
