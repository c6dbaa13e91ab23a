"""Rows of a task are joined from log and server, and a witness reads their requests again: without the library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specs.stages.base.artifacts import Item
from specs.stages.evaluation.rows import BenchmarkRow
from testing.fixtures.small_text import small_model
from testing.fixtures.stage_jobs import stage_job
from testing.fixtures.witnessed_jobs import rewrite, unwritten
from training.engines.completion_server import CompletionLimits, CompletionServer, ServedCall
from training.engines.engine_factory import make_engine
from training.jobs.evaluation.benchmark_rows import rows_of, sample_of
from training.jobs.job import Job
from training.rules.evaluation.inspect_log import Log, LoggedAnswer, LoggedSample, ScorerValue
from training.rules.prompt_encoding import dialogue_ids

ITEMS = [
    Item(id=f"i{n}", group=f"g{n}", kind="word", prompt=f"Say {'x' * n}", constraint={"answer": "x"})
    for n in range(1, 5)
]
NO_LOG = Log("success", "t", {}, {}, ())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("asked") / "model", chat=True)


@pytest.fixture(scope="module")
def calls(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ServedCall]:
    """Two requests for each item, the second one with the first answer in it, as the server keeps them."""
    folder = tmp_path_factory.mktemp("served")
    engine = make_engine("batched", model, 4, scratch=folder, share=False)
    server = CompletionServer(
        engine,
        lambda results: dialogue_ids(engine.tokenizer, results, "chat").ids,
        CompletionLimits(9, None, 0, 4),
        folder / "s",
    )
    with server:
        for item in ITEMS:
            first = server.answer({"messages": [{"role": "user", "content": item.prompt}], "max_tokens": 6})
            messages = [*first.messages, {"role": "assistant", "content": first.output.text}]
            server.answer({"messages": [*messages, {"role": "user", "content": "Sure?"}], "stop": "zz"})
    return server.calls


def log_of(calls: dict[str, ServedCall], **changes: Any) -> Log:
    samples = [
        LoggedSample(
            id=item.id,
            epoch=1,
            error=False,
            target=("x",),
            output=calls[f"call-{2 * n + 1}"].output.text,
            scores=(ScorerValue("match", "C" if n % 2 else "I"),),
            answers=tuple(LoggedAnswer(id, calls[id].output.text) for id in (f"call-{2 * n}", f"call-{2 * n + 1}")),
            metadata={},
        )
        for n, item in enumerate(ITEMS)
    ]
    # The library logs samples in the order in which they ended.
    samples.reverse()
    samples[0] = samples[0]._replace(**changes)
    return NO_LOG._replace(samples=tuple(samples))


def write_job(folder: Path, model: Path, rows: list[BenchmarkRow], **settings: Any) -> Job:
    folder.mkdir(exist_ok=True)
    items = folder / "items.jsonl"
    items.write_text("".join(f"{item.model_dump_json()}\n" for item in ITEMS), encoding="utf-8")
    arguments = {"task": "t", "score": "match", "max_new_tokens": 9} | settings
    job = stage_job(
        folder / "run" / "jobs" / "job", "inspect", {"model": model, "items": items}, "instruct", **arguments
    )
    job.write_rows("rows", rows)
    return job


def test_rows_are_in_the_order_of_the_items_and_hold_their_requests(calls: dict[str, ServedCall]) -> None:
    rows = rows_of(log_of(calls), ITEMS, calls, "match")
    assert [row.item for row in rows] == [item.id for item in ITEMS]
    assert [row.correct for row in rows] == [False, True, False, True]
    assert [call.max_new_tokens for call in rows[0].calls] == [6, 9] and rows[0].calls[1].stops == ("zz",)
    assert rows[2].calls[1].messages[1].content == rows[2].calls[0].output


@pytest.mark.parametrize(
    ("changes", "output"),
    [
        ({"id": "i1"}, "each item has to be one sample"),
        ({"id": "other"}, "each item has to be one sample"),
        ({"answers": ()}, "the log names 6 answers, the model gave 8"),
        (
            {"answers": (LoggedAnswer("call-6", ""), LoggedAnswer("call-6", ""))},
            "the log names 8 answers, the model gave 8",
        ),
        (
            {"answers": (LoggedAnswer("call-6", ""), LoggedAnswer("made-up", ""))},
            "the log names 8 answers, the model gave 8",
        ),
        ({"scores": (ScorerValue("other", "C"),)}, "'i4' has no score 'match'; it has other"),
    ],
)
def test_a_log_that_does_not_fit_what_the_model_was_asked_is_refused(
    calls: dict[str, ServedCall], changes: dict[str, Any], output: str
) -> None:
    with pytest.raises(ValueError, match=output):
        rows_of(log_of(calls, **changes), ITEMS, calls, "match")


def test_a_witness_reads_every_request_again(tmp_path: Path, model: Path, calls: dict[str, ServedCall]) -> None:
    rows = rows_of(log_of(calls), ITEMS, calls, "match")
    job = write_job(tmp_path, model, rows)
    assert unwritten(job) == set()
    assert unwritten(job, small_model(tmp_path / "other", chat=True, seed=5), "others") == {0, 1, 2, 3}

    def swapped(results: list[dict[str, Any]]) -> None:
        """The second request of one row says what another answer said; the last one was asked something else."""
        results[1]["calls"][1] |= {"output": "Yes", "answer_ids": [56, 68, 82], "output_tokens": 3}
        results[3]["calls"][0]["messages"][0]["content"] = "Say nothing of the kind, whatever comes"

    rewrite(job, "rows", swapped)
    assert {1} <= unwritten(job, folder="again") <= {1, 3}


EPOCHS = 3


@pytest.fixture(scope="module")
def drawn(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[BenchmarkRow]:
    """Rows of three epochs at a temperature, asked in an order in which epochs and items mix."""
    folder = tmp_path_factory.mktemp("drawn")
    engine = make_engine("batched", model, 4, scratch=folder, share=False)
    server = CompletionServer(
        engine,
        lambda messages: dialogue_ids(engine.tokenizer, messages, "chat").ids,
        CompletionLimits(9, 1.0, 7, 4),
        folder / "s",
    )
    logged: list[LoggedSample] = []
    with server:
        for epoch in range(1, EPOCHS + 1):
            for item in ITEMS if epoch % 2 else reversed(ITEMS):
                call = server.answer({"messages": [{"role": "user", "content": item.prompt}]})
                answers = (LoggedAnswer(call.id, call.output.text),)
                scores = (ScorerValue("match", "I"),)
                logged.append(LoggedSample(item.id, epoch, False, ("x",), call.output.text, scores, answers, {}))
    with pytest.raises(ValueError, match="one sample in each of 4 epochs"):
        rows_of(NO_LOG._replace(samples=tuple(logged)), ITEMS, server.calls, "match", EPOCHS + 1)
    return rows_of(NO_LOG._replace(samples=tuple(logged)), ITEMS, server.calls, "match", EPOCHS)


def test_sampled_answers_of_every_epoch_are_read_again_by_their_draws(
    tmp_path: Path, model: Path, drawn: list[BenchmarkRow]
) -> None:
    assert [(row.item, row.sample) for row in drawn] == [(item.id, at) for item in ITEMS for at in range(EPOCHS)]
    assert [row.calls[0].draw for row in drawn] == [0, 1, 2] * len(ITEMS)
    settings = {"temperature": 1.0, "samples_per_item": EPOCHS, "seed": 7}
    job = write_job(tmp_path, model, drawn, **settings)
    assert unwritten(job) == set()
    changed = write_job(tmp_path / "seed", model, drawn, **settings | {"seed": 8})
    assert len(unwritten(changed)) > len(drawn) // 2, "drawn with the noise of another seed"

    def kept_twice(rows: list[dict[str, Any]]) -> None:
        """One draw is kept as the answer of two epochs: the second is not what its number gives."""
        first = rows[0]["calls"][0]
        rows[1]["calls"][0] |= {name: first[name] for name in ("output", "answer_ids", "output_tokens", "finish")}

    rewrite(job, "rows", kept_twice)
    assert unwritten(job, folder="again") == {1}


def test_an_item_becomes_a_sample() -> None:
    choice = {"choice_1": "tea", "choice_2": "ale", "answer": 2}
    item = Item(id="q", group="g", kind="k", prompt="Which?", constraint=choice)  # pyright: ignore[reportArgumentType]
    results = sample_of(item)
    assert (results["choices"], results["target"]) == (["tea", "ale"], "B")
    several = item.model_copy(update={"constraint": {"answer": "tea", "answer_2": "a tea"}})
    assert sample_of(several)["target"] == ["tea", "a tea"] and "choices" not in sample_of(several)
    assert json.dumps(sample_of(item.model_copy(update={"constraint": {}}))["target"]) == '""'
