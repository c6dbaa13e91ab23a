"""Rules on JSONL data: held-out questions that the training data hold, and held-out questions asked twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from reviews.evidence.text_overlap import find_overlaps
from reviews.requests.rules.rule_findings import MAX_PLACES, RuleFindings, RuleMaterial, place_of
from specs.system.regular_files import read_regular
from specs.trail.requested_review import Citation
from training.rules.disguise import Words
from training.rules.similarity import words_of

DATA = (".jsonl", ".ndjson")
MAX_DATA_BYTES = 64 * 2**20
MAX_ROWS = 200_000
_HELDOUT = re.compile(r"held.?out|(?:^|[^a-z])(?:test|eval|evaluation|valid|validation|dev|benchmark)(?:[^a-z]|$)")
_TRAINING = re.compile(r"(?:^|[^a-z])(?:train|training|prompts?|sft|dpo|pairs|pretrain)(?:[^a-z]|$)")
_TEXT_KEYS = ("prompt", "question", "instruction", "input", "text")


class QuestionLine(NamedTuple):
    """A line of a data file and the question in it."""

    line: int
    question: str
    raw: str


def check_data(material: RuleMaterial) -> RuleFindings:
    """Compare the JSONL files that are named as training data with those named as held-out data."""
    result = RuleFindings()
    sides: dict[str, dict[str, list[QuestionLine]]] = {"training": {}, "heldout": {}}
    for name, path in sorted(material.sources.items()):
        if not name.lower().endswith(DATA):
            continue
        side = _side(name)
        rows = _rows(path, material.mask) if side else None
        if side is None:
            result.not_judged.append(f"{name}: its name says neither training nor held-out")
        elif rows is None:
            result.not_judged.append(f"{name}: too large, or not one JSON object with a prompt a line")
        else:
            result.looked_at.append(name)
            sides[side][name] = rows
    for name, rows in sides["heldout"].items():
        _check_repeats(result, name, rows)
    if sides["training"] and sides["heldout"]:
        _check_overlap(result, sides["training"], sides["heldout"])
    elif sides["training"] or sides["heldout"]:
        result.not_judged.append("overlap of training and held-out data: only one of the two was among the files")
    return result


def _check_overlap(
    result: RuleFindings, training: dict[str, list[QuestionLine]], heldout: dict[str, list[QuestionLine]]
) -> None:
    overlaps = find_overlaps(_pairs(training), _pairs(heldout))
    total = sum(map(len, heldout.values()))
    if not overlaps:
        trained = [(name, row) for name, rows in training.items() for row in rows]
        fact = f"none of {total} held-out questions is in the training data ({len(trained)} rows)"
        name, row = trained[0]
        result.passed.append((fact, place_of(name, row.line, row.raw)))
        return
    kinds = {
        how: sum(overlap.how == how for overlap in overlaps)
        for how in ("exact", "normalised", "decoded", "near", "contained")
    }
    counted = ", ".join(f"{count} {how}" for how, count in kinds.items() if count)
    count = len({overlap.heldout for overlap in overlaps})
    pairs = [
        pair
        for overlap in overlaps[: MAX_PLACES // 2]
        for pair in ((training, overlap.train), (heldout, overlap.heldout))
    ]
    evidence = [_place(side, name) for side, name in pairs]
    result.issue("CRITICAL", f"the training data hold {count} of {total} held-out questions ({counted})", evidence)
    result.recommend(
        "Take the overlapping questions out of the training data, or choose other held-out ones.",
        "What was trained on measures memory; a gain on it says nothing about new questions.",
    )


def _check_repeats(result: RuleFindings, name: str, rows: list[QuestionLine]) -> None:
    first: dict[Words, QuestionLine] = {}
    repeats: list[tuple[QuestionLine, QuestionLine]] = []
    for row in rows:
        words = words_of(row.question)
        if words in first:
            repeats.append((first[words], row))
        elif words:
            first[words] = row
    if repeats:
        evidence = [place_of(name, row.line, row.raw) for pair in repeats[: MAX_PLACES // 2] for row in pair]
        message = f"{len(repeats)} of {len(rows)} held-out questions repeat another: n counts rows, not questions"
        result.issue("HIGH", message, evidence)


def _pairs(side: dict[str, list[QuestionLine]]) -> list[tuple[str, str]]:
    return [(f"{name}\n{row.line}", row.question) for name, rows in side.items() for row in rows]


def _place(side: dict[str, list[QuestionLine]], id: str) -> Citation:
    name, line = id.rsplit("\n", 1)
    return place_of(name, int(line), next(row.raw for row in side[name] if row.line == int(line)))


def _side(name: str) -> str | None:
    stem = Path(name).name.lower()
    if _HELDOUT.search(stem):
        return "heldout"
    return "training" if _TRAINING.search(stem) else None


def _rows(path: Path, mask: Callable[[str], str]) -> list[QuestionLine] | None:
    """Return the questions of a data file; None when it does not have that form throughout."""
    try:
        if path.stat().st_size > MAX_DATA_BYTES:
            return None
        lines = read_regular(path).decode("utf-8").split("\n")
        rows = [
            QuestionLine(number, question, mask(line))
            for number, line in enumerate(lines, 1)
            if line.strip() and (question := _question(json.loads(line)))
        ]
    except (OSError, ValueError, RecursionError):
        return None
    return rows if rows and len(rows) <= MAX_ROWS else None


def _question(row: Any) -> str:
    if not isinstance(row, dict):
        raise ValueError("a line is not a JSON object")
    for key in _TEXT_KEYS:
        if isinstance(row.get(key), str) and row[key].strip():
            return row[key]
    messages: Any = row.get("messages")
    if isinstance(messages, list):
        requests = [
            message.get("content")
            for message in messages
            if isinstance(message, dict) and message.get("role") == "user"
        ]
        if requests and isinstance(requests[0], str):
            return requests[0]
    raise ValueError("a line has no prompt")
