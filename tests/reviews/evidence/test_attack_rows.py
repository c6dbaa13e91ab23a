"""A part of the attack on raw rows, and that it would report a guard that is gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.attack.rows import FORMS, KINDS, attack
from reviews.evidence import row_reader
from reviews.gate.check_list import CHECKS
from specs.system.strict_json import MOST_DEPTH, read_json


def test_every_hostile_form_closes_the_gate(tmp_path: Path) -> None:
    assert len(FORMS) >= 30
    outcome = attack(1, tmp_path, ("sft", "self_instruct", "multi_turn"), tuple(FORMS))
    assert (outcome.not_run, outcome.missed) == ("", [])
    assert outcome.attempts > 120


def test_healthy_rows_of_every_kind_open_the_gate_and_broken_ones_close_it(tmp_path: Path) -> None:
    """Where the healthy rows of a kind fail, the whole attack is not run."""
    outcome = attack(1, tmp_path, tuple(KINDS), ("half a row",))
    assert (outcome.not_run, outcome.missed) == ("", [])


def test_the_attack_reports_names_that_stand_twice_where_no_one_looks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_reader, "read_json", json.loads)
    outcome = attack(1, tmp_path, ("evaluate",), ("a name twice", "NaN"))
    assert [name.split(":")[1].strip() for name in outcome.missed] == ["a name twice, seed 1"]


def test_the_attack_reports_a_gate_that_needs_no_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Perplexity rows are read by no check but the one that asks whether they could be measured."""
    without = tuple(check for check in CHECKS if check.id != "jobs.measured")

    def but_one(_: object) -> object:
        return without

    monkeypatch.setattr("reviews.gate.check_list.all_checks", but_one)
    assert len(attack(1, tmp_path, ("perplexity",), ("half a row",)).missed) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 1}', "duplicate key 'a'"),
        ('{"a": {"b": 1, "b": 2}}', "duplicate key 'b'"),
        ("NaN", "not a JSON number"),
        ("[-Infinity]", "not a JSON number"),
        ("1e999", "too large"),
        ("9" * 5000, "too large"),
        (str(2**53), "too large"),
        ("[" * (MOST_DEPTH + 2) + "]" * (MOST_DEPTH + 2), "nested"),
        ("[" * 200_000, "nested"),
        ('"\\udc00"', "half of a character pair"),
        (b"\xff", "UTF-8"),
        ("", "Expecting value"),
    ],
)
def test_what_is_no_strict_json_is_refused_in_one_line(text: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_json(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_strict_json_is_read_as_it_is() -> None:
    value = {"a": [1, 2.5, None, True, "\U0001f600 é"], "b": {"a": -(2**53) + 1}}
    assert read_json(json.dumps(value)) == read_json(json.dumps(value, ensure_ascii=False).encode()) == value
    with pytest.raises(ValueError, match="more than 3 bytes"):
        read_json("[1, 2]", 3)
