"""``choose`` through lm-eval: the rows are those of our own scoring of the same questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specs.evidence import Item
from specs.kinds_evaluation import ChooseParameters
from tests.fixtures.critic_jobs import lines, stage_job
from tests.fixtures.small_text import small_model
from training.entry import Job
from training.scoring import lm_eval_task
from training.stages.choose import choose

TASK = {"doc_to_text": "Of {{kind}}: {{prompt}}?\nAnswer:", "target_delimiter": " "}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model"))


def questions() -> list[Item]:
    given: list[tuple[str, list[str], int]] = [
        ("tell about the sea", ["rain", "the old house and the sea"], 1),
        ("a {{kind}} of {prompt}", ["a list", "a song", "the cat"], 3),
        ("name the cat", ["dog", "cat"], 2),
    ]
    return [
        Item(
            id=f"q{n}",
            group=f"g{n}",
            kind="fact",
            prompt=prompt,
            constraint={f"choice_{k}": one for k, one in enumerate(choices, 1)} | {"answer": answer},
        )
        for n, (prompt, choices, answer) in enumerate(given)
    ]


def job_of(folder: Path, model: Path, items: list[Item], **parameters: Any) -> Job:
    inputs = {"model": model, "items": lines(folder / "items.jsonl", items)}
    return stage_job(folder, "choose", inputs, "base", **parameters)


def rows_of(job: Job) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (job.out / "rows.jsonl").read_text(encoding="utf-8").splitlines()]


def test_without_the_library_the_stage_is_refused_with_what_to_install(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lm_eval_task, "find_spec", {}.get)
    with pytest.raises(SystemExit) as left:
        choose(job_of(tmp_path, model, questions(), lm_eval=TASK))
    assert left.value.code == 4
    assert "lm-eval is not installed (pip install 'peergate[lm-eval]')" in capsys.readouterr().err


def test_a_question_is_written_in_one_place() -> None:
    with pytest.raises(ValueError, match=r"lm_eval\.doc_to_text, not in question"):
        ChooseParameters.model_validate({"lm_eval": {}, "question": "Q: {prompt}"})
    # What is not set is not part of a registration.
    assert "lm_eval" not in ChooseParameters().model_dump(mode="json")


def test_lm_eval_gives_the_rows_of_our_own_scoring(tmp_path: Path, model: Path) -> None:
    """Kills: choices or items in another order, log-likelihoods of the wrong sign, tokens of the whole text."""
    pytest.importorskip("lm_eval", reason="lm-eval is not installed (the extra 'lm-eval')")
    job = job_of(tmp_path / "theirs", model, questions(), lm_eval=TASK, batch_size=2)
    done = choose(job)
    theirs = rows_of(job)
    ours: list[dict[str, Any]] = []
    for number, item in enumerate(questions()):
        own = job_of(tmp_path / f"ours{number}", model, [item], question="Of fact: {prompt}?\nAnswer:")
        choose(own)
        ours += rows_of(own)
    assert [row["item"] for row in theirs] == ["q0", "q1", "q2"]
    for one, other in zip(theirs, ours, strict=True):
        assert one["prompt_tokens"] == other["prompt_tokens"]
        for score, due in zip(one["choices"], other["choices"], strict=True):
            assert (score["tokens"], score["bytes"]) == (due["tokens"], due["bytes"])
            assert score["nats"] == pytest.approx(due["nats"], rel=1e-4)
    best = [min(range(len(row["choices"])), key=lambda k, row=row: row["choices"][k]["nats"]) for row in theirs]
    right = [item.constraint["answer"] == place + 1 for item, place in zip(questions(), best, strict=True)]
    # The library's own figure of the same run is a claim, and agrees.
    assert done.facts["lm_eval"]["states"]["acc,none"] == pytest.approx(sum(right) / 3)


def test_a_question_that_the_library_would_cut_is_refused(tmp_path: Path, model: Path) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed (the extra 'lm-eval')")
    long = questions()[0].model_copy(update={"prompt": "the old house and the sea " * 200})
    with pytest.raises(ValueError, match=r"'q0' with a choice has \d+ tokens, the model reads \d+"):
        choose(job_of(tmp_path, model, [long], lm_eval=TASK))
