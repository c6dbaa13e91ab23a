"""Conversations under a control, held by a tiny model: what it read before each turn, against the plainest way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specs.stages.base.artifacts import Item
from testing.fixtures.critic_jobs import lines
from testing.fixtures.small_text import small_model
from testing.fixtures.stage_jobs import stage_job
from tests.stages.evaluation.test_evaluation_stages import run
from training.engines.checkpoint import load
from training.engines.engine import BatchedEngine
from training.engines.token_sampling import TokenSampling
from training.jobs.evaluation.multi_turn import converse
from training.jobs.job import Job
from training.jobs.row_files import GroupedRows
from training.rules.tasks.conversation import donors, turns_of

pytestmark = pytest.mark.integration

TURNS = (
    ("memory", "my cat likes the sea", {"turn_2": "tell a tale", "turn_3": "what likes my cat", "require_3": "sea"}),
    ("preference", "write short lines", {"turn_2": "write about bread", "most_words_2": 5}),
    ("continuity", "write about rain", {"turn_2": "tell more", "turn_3": "a list of it", "require_3": "rain"}),
    ("update", "write a long song", {"turn_2": "now a short song", "most_words_2": 4}),
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model"))


def talks() -> list[Item]:
    return [
        Item(id=f"{kind}{n}", group=f"{kind}{n}", kind=kind, prompt=f"{first} {'and more ' * n}", constraint=dict(rest))
        for n in range(2)
        for kind, first, rest in TURNS
    ]


def job_of(folder: Path, model: Path, **parameters: Any) -> Job:
    inputs = {"model": model, "items": lines(folder / "items.jsonl", talks())}
    return stage_job(folder, "multi_turn", inputs, "base", max_new_tokens=5, batch_size=8, **parameters)


def test_before_each_turn_stand_turns_of_others_with_what_they_were_answered(tmp_path: Path, model: Path) -> None:
    rows = run(job_of(tmp_path, model, history="shuffled", seed=5))
    items = talks()
    views = donors(items, 5)
    weights, tokenizer = load(model)
    for place, (item, row) in enumerate(zip(items, rows, strict=True)):
        assert [turn["user"] for turn in row["turns"]] == list(turns_of(item))
        for number, turn in enumerate(row["turns"]):
            before = [rows[whose]["turns"][earlier] for earlier, whose in enumerate(views[place][:number])]
            text = "".join(f"User: {value['user']}\nAssistant: {value['output'].strip()}\n" for value in before)
            ids = list(tokenizer(f"{text}User: {turn['user']}\nAssistant:")["input_ids"])
            ((output,),) = BatchedEngine(weights, tokenizer, 1).complete([ids], TokenSampling(5))
            message = output.text
            for stop in ("\nUser:", "\nAssistant:"):
                message = message.split(stop)[0]
            assert (turn["prompt_tokens"], turn["output"]) == (len(ids), message), (item.id, number)


def test_controls_begin_alike_and_differ_where_there_is_a_history(tmp_path: Path, model: Path) -> None:
    rows = {
        history: run(job_of(tmp_path / history, model, history=history)) for history in ("whole", "none", "shuffled")
    }
    first = [[row["turns"][0]["output"] for row in arm_rows] for arm_rows in rows.values()]
    assert first[0] == first[1] == first[2]
    lengths = {
        name: [turn["prompt_tokens"] for row in arm_rows for turn in row["turns"][1:]]
        for name, arm_rows in rows.items()
    }
    assert lengths["whole"] != lengths["shuffled"]
    assert all(long > short for long, short in zip(lengths["shuffled"], lengths["none"], strict=True))


class EarlyEnd(BaseException):
    """The stage is ended here."""


def test_a_control_that_was_ended_goes_on_with_the_same_donors(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(job_of(tmp_path / "whole", model, history="shuffled", seed=3))
    job = job_of(tmp_path / "ended", model, history="shuffled", seed=3)
    add = GroupedRows.add

    def once(self: GroupedRows[Any], rows: list[Any]) -> None:
        add(self, rows)
        if len(self.groups) == 2:
            raise EarlyEnd

    with monkeypatch.context() as ending:
        ending.setattr(GroupedRows, "add", once)
        with pytest.raises(EarlyEnd):
            converse(job)
    assert run(job) == whole


def test_conversations_of_one_kind_have_no_control(tmp_path: Path, model: Path) -> None:
    alone = [item for item in talks() if item.kind == "memory"]
    inputs = {"model": model, "items": lines(tmp_path / "items.jsonl", alone)}
    job = stage_job(tmp_path, "multi_turn", inputs, "base", max_new_tokens=5, history="shuffled")
    with pytest.raises(ValueError, match="no other kind has a turn 1"):
        converse(job)
