"""What a witness is to read: drawn from the entry of the job's end, the same for anyone who draws it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from math import comb
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.gate.challenge import draw_places, sample_size, tokens_in, witness_order
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from specs.jobs.job_records import JobOrder
from specs.stages.base.stage import Kind
from specs.system.digests import Contract, digest_bytes
from training.jobs.row_files import lines_of


@pytest.mark.parametrize(("count", "number"), [(0, 0), (1, 1), (16, 16), (40, 31), (120, 47), (1000, 57)])
def test_so_many_rows_are_read_on_a_cpu(count: int, number: int) -> None:
    assert sample_size(count) == number


@pytest.mark.parametrize(
    ("count", "tokens", "number"),
    [(1000, 100_000, 57), (1000, 10_000, 150), (120, 1200, 120), (120, 3000, 60), (0, 0, 0)],
)
def test_so_many_rows_of_samples_are_read_that_they_hold_enough_tokens(count: int, tokens: int, number: int) -> None:
    assert sample_size(count, tokens) == number


def test_tokens_are_counted_in_rows_as_jobs_write_them() -> None:
    row = {"completion": 'he said "answer_ids": [1,2,3,4]', "answer_ids": [4, 5, 6], "template_ids": [1, 2]}
    rows = [row, row | {"answer_ids": []}, {"critique_ids": (1, 2), "revision_ids": (3,)}]
    assert tokens_in(lines_of([_Row.model_validate(row) for row in rows])) == 6 == tokens_in(_dumped(rows))


class _Row(Contract):
    completion: str = ""
    answer_ids: tuple[int, ...] = ()
    critique_ids: tuple[int, ...] = ()
    revision_ids: tuple[int, ...] = ()
    template_ids: tuple[int, ...] = ()


def _dumped(rows: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@given(st.integers(20, 3000))
def test_one_of_the_wrong_rows_is_drawn_as_often_as_promised_and_not_with_one_row_less(count: int) -> None:
    rows, wrong = sample_size(count), count // 20

    def chance_of_finding(read: int) -> float:
        return 1 - comb(count - wrong, read) / comb(count, read)

    assert chance_of_finding(rows) >= 0.95 > chance_of_finding(rows - 1)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 5))
def test_a_draw_is_of_different_places_in_order_and_follows_from_its_seed(count: int, most: int, seed: int) -> None:
    digest = digest_bytes(bytes([seed]))
    places = draw_places(digest, count, most)
    assert places == tuple(sorted(set(places))) == draw_places(digest, count, most)
    assert len(places) == min(count, most) and all(0 <= place < count for place in places)


def test_another_end_draws_other_rows_and_every_row_is_drawn_at_last() -> None:
    draws = [draw_places(digest_bytes(f"{number}".encode()), 120, 47) for number in range(60)]
    assert len(set(draws)) == 60 and {place for draw in draws for place in draw} == set(range(120))


def test_a_witness_is_asked_of_kinds_with_answers_whose_job_ended_well(closed_quick: Path) -> None:
    entries, store = read_entries(closed_quick / "trail.sqlite"), Store(closed_quick / "store")
    orders = {
        name: witness_order(History(entries, store), f"small.{name}.1")
        for name in ("base", "sample", "train", "tuned", "ship")
    }
    assert [name for name, order in orders.items() if order is not None] == list(orders)
    ended = next(entry for entry in entries if entry.key == "exit/small.tuned.1")
    order = orders["tuned"]
    assert order is not None and order.challenge is not None
    assert order.key == "small.tuned.1.witness" and order.challenge.ended == ended.digest
    assert set(order.inputs) == {"model", "items", "left.rows"}
    # Before its end there is nothing to draw from.
    assert witness_order(History(entries[: ended.seq], store), "small.tuned.1") is None


def test_outputs_with_scores_are_drawn_one_by_one(closed_quick: Path) -> None:
    entries, store = read_entries(closed_quick / "trail.sqlite"), Store(closed_quick / "store")
    order = ordered(entries, store, "critique_instructions", rows=40, calibration=40)
    assert order is not None and order.challenge is not None and order.challenge.others is not None
    rows, calibration = order.challenge.select_rows("rows"), order.challenge.select_rows("calibration")
    assert (len(rows.rows), rows.of) == (len(calibration.rows), calibration.of) == (31, 40)
    assert rows.rows != calibration.rows and order.challenge.counts() == (62, 80)
    samples = [b'{"answer_ids": [1, 2, 3]}\n' * 40, b'{"answer_ids": [%b]}\n' % b",".join([b"1"] * 100) * 40]
    other = {"engine": "continuous"}
    assert [_read_of(entries, store, "generate", rows, other) for rows in samples] == [40, 31]
    assert [_read_of(entries, store, "generate", rows) for rows in samples] == [31, 31], "draws by known noise"
    assert [_read_of(entries, store, "evaluate", rows) for rows in samples] == [31, 31], "greedy answers"
    # What lm-eval asked no one asks again; a judge that leaves no comparison has none to score.
    assert ordered(entries, store, "multiple_choice", {"lm_eval_task": "arc_easy"}, rows=40) is None
    # The answers of an export are compared with nothing unless llama.cpp reads it.
    assert ordered(entries, store, "export", {"verify": "no"}, rows=8) is None
    read = ordered(entries, store, "export", {"verify": "llama_cpp"}, rows=8)
    assert read is not None and read.challenge is not None and read.challenge.counts() == (8, 8)
    best = ordered(entries, store, "best_of_n", rows=40, comparisons=0, calibration=20)
    assert best is not None and best.challenge is not None
    assert best.challenge.counts() == (31 + 19, 60) and best.challenge.select_rows("comparisons").of == 0


@pytest.mark.parametrize(("rows", "number"), [(120, 120), (401, 400), (8000, 400)])
def test_on_a_gpu_as_many_rows_are_read_as_cost_next_to_nothing(closed_quick: Path, rows: int, number: int) -> None:
    entries, store = read_entries(closed_quick / "trail.sqlite"), Store(closed_quick / "store")
    order = ordered(entries, store, "evaluate", device="cuda:0", rows=rows)
    assert order is not None and order.challenge is not None and order.challenge.counts() == (number, rows)


def _read_of(
    entries: Sequence[RecordedEntry], store: Store, kind: Kind, rows: bytes, parameters: dict[str, Any] | None = None
) -> int:
    order = ordered(entries, store, kind, parameters, rows=rows)
    assert order is not None and order.challenge is not None
    return len(order.challenge.rows)


def ordered(
    entries: Sequence[RecordedEntry],
    store: Store,
    kind: Kind,
    parameters: dict[str, Any] | None = None,
    device: str = "cpu",
    **outputs: int | bytes,
) -> JobOrder | None:
    """Return the order of a witness if the stage ``tuned`` were of another kind and had left so many rows."""
    launch, ended = (History(entries).find_key(f"{what}/small.tuned.1") for what in ("launch", "exit"))
    assert launch is not None and ended is not None
    order = JobOrder.model_validate_json(store.get(launch.raw["order"]))
    order = order.model_copy(update={"kind": kind, "parameters": parameters or {}})
    stored = {
        name: {
            "path": name,
            "digest": store.put(b"{}\n" * output if isinstance(output, int) else output),
            "bytes": 0,
            "stored": True,
        }
        for name, output in outputs.items()
    }
    manifest = store.put_value(store.get_value(ended.raw["manifest"]) | {"device": device})
    changed = ((launch, {"order": store.put_value(order)}), (ended, {"outputs": stored, "manifest": manifest}))
    recorded_entries = [
        replace(entry, entry=entry.entry.model_copy(update={"body": entry.raw | changes})) for entry, changes in changed
    ]
    return witness_order(History(recorded_entries, store), "small.tuned.1")
