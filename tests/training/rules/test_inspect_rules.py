"""Logs of inspect_ai without the library, and its plain scorers carried out again."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from testing.factories.benchmark_evidence import header, rows, samples
from training.rules.evaluation import inspect_log
from training.rules.evaluation.benchmark_scores import is_right, scored_again
from training.rules.evaluation.inspect_log import NotALog, read_log, write_log

SCORED: tuple[tuple[str, dict[str, Any], str, list[str], bool | None], ...] = (
    ("match", {}, "It is Cold.", ["cold"], True),
    ("match", {}, "cold it is", ["cold"], False),
    ("match", {"location": "begin"}, "Cold it is", ["cold"], True),
    ("match", {"location": "any"}, "so cold it is", ["cold"], True),
    ("match", {"location": "exact"}, " cold! ", ["cold"], True),
    ("match", {"location": "exact"}, "It is cold", ["cold"], False),
    ("match", {"ignore_case": False}, "It is Cold", ["cold"], False),
    ("match", {}, "six", ["5", "six"], True),
    ("match", {"numeric": True}, "12 and 30 make $42.00!", ["42"], True),
    ("match", {"numeric": True}, "42 is 1,000 less", ["1000"], True),
    ("match", {"numeric": True}, "it is 25", ["5"], False),
    ("match", {"numeric": True, "location": "begin"}, "so 7 and 8", ["7"], True),
    ("match", {"numeric": True, "location": "any"}, "so 7 and 8", ["9"], False),
    ("match", {"numeric": True}, "no number at all", ["5"], False),
    ("match", {"numeric": True}, "it is 3/4", ["0.75"], None),
    ("match", {"numeric": True}, "it is ½", ["0.5"], None),
    ("match", {"numeric": True}, "it is five", ["five"], None),
    ("match", {"location": "middle"}, "x", ["x"], None),
    ("match", {"unknown": 1}, "x", ["x"], None),
    ("includes", {}, "A COLD day", ["cold"], True),
    ("includes", {"ignore_case": False}, "A COLD day", ["cold"], False),
    ("includes", {}, "warm", ["hot", "arm"], True),
    ("pattern", {"pattern": r"ANSWER: (\w+)"}, "answer: b", ["B"], True),
    ("pattern", {"pattern": r"ANSWER: (\w+)"}, "b", ["B"], False),
    ("pattern", {"pattern": r"ANSWER: (\w+)", "ignore_case": False}, "ANSWER: b", ["B"], False),
    ("pattern", {"pattern": r"(\w) (\w)", "match_all": True}, "a b", ["a"], False),
    ("pattern", {"pattern": r"(\w) (\w)"}, "a b", ["b"], True),
    ("pattern", {"pattern": "("}, "a", ["a"], None),
    ("their_own", {}, "a", ["a"], None),
    ("model_graded_qa", {}, "a", ["a"], None),
)


@pytest.mark.parametrize(("scorer", "options", "answer", "targets", "expected"), SCORED)
def test_a_plain_scorer_is_carried_out_again(
    scorer: str, options: dict[str, Any], answer: str, targets: list[str], expected: bool | None
) -> None:
    assert scored_again(scorer, options, answer, targets) is expected


@pytest.mark.parametrize(
    ("value", "right"),
    [("C", True), ("I", False), ("P", False), (1.0, True), (True, True), (0.99, False), (False, False), (None, False)],
)
def test_what_a_score_says(value: Any, right: bool) -> None:
    assert is_right(value) is right


def test_a_log_that_was_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.eval"
    write_log(path, header(), samples(rows()))
    log = read_log(path)
    assert (log.status, log.task, log.scorers["match"]) == ("success", "opposites", ("match", {}))
    assert [sample.id for sample in log.samples] == [row["item"] for row in rows()]
    assert [[answer.text for answer in sample.answers] for sample in log.samples] == [
        [call["output"] for call in row["calls"]] for row in rows()
    ]
    again = tmp_path / "b.eval"
    write_log(again, header(), samples(rows()))
    assert again.read_bytes() == path.read_bytes()


def archive(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w") as opened:
        for name, text in members.items():
            opened.writestr(name.replace("__", "/"), text)
    return path


def test_what_is_no_log_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"PK and so on")
    with pytest.raises(NotALog, match="not an archive"):
        read_log(broken)
    with pytest.raises(NotALog, match="not JSON"):
        read_log(archive(tmp_path / "text", samples__1="{"))
    with pytest.raises(NotALog, match="not JSON"):
        read_log(archive(tmp_path / "deep", samples__1="[" * 100_000))
    for odd in ("[]", "3", '{"events": 4, "scores": [], "target": null, "epoch": "x"}'):
        (sample,) = read_log(archive(tmp_path / "odd", samples__1=odd)).samples
        assert sample.answers == () and sample.scores == () and sample.epoch == 0
    monkeypatch.setattr(inspect_log, "MOST_BYTES", 100)
    with pytest.raises(NotALog, match="more than 100 bytes"):
        read_log(archive(tmp_path / "large", samples__1=json.dumps("x" * 100)))
