"""``multiple_choice`` through lm-eval: the rows are those of our own scoring of the same questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specs.stages.base.artifacts import Item
from specs.stages.evaluation.parameters import MultipleChoiceParameters
from testing.fixtures.critic_jobs import lines
from testing.fixtures.small_text import small_model
from testing.fixtures.stage_jobs import stage_job
from training.items.lm_eval_items import items_of
from training.jobs.evaluation import lm_eval_task
from training.jobs.evaluation.lm_eval_task import of_the_library
from training.jobs.evaluation.multiple_choice import choose
from training.jobs.job import Job
from training.rules.tasks.choices import answer_of, choices_of

pytestmark = pytest.mark.integration

TASK = {"doc_to_text": "Of {{kind}}: {{prompt}}?\nAnswer:", "target_delimiter": " "}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model"))


def questions() -> list[Item]:
    values: list[tuple[str, list[str], int]] = [
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
            constraint={f"choice_{k}": choice for k, choice in enumerate(choices, 1)} | {"answer": answer},
        )
        for n, (prompt, choices, answer) in enumerate(values)
    ]


def job_of(folder: Path, model: Path, items: list[Item], **parameters: Any) -> Job:
    inputs = {"model": model, "items": lines(folder / "items.jsonl", items)}
    return stage_job(folder, "multiple_choice", inputs, "base", **parameters)


def rows_of(job: Job) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (job.out / "rows.jsonl").read_text(encoding="utf-8").splitlines()]


def test_without_the_library_the_stage_is_refused_with_what_to_install(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lm_eval_task, "find_spec", {}.get)
    with pytest.raises(SystemExit) as caught:
        choose(job_of(tmp_path, model, questions(), lm_eval=TASK))
    assert caught.value.code == 4
    assert "lm-eval is not installed (" in capsys.readouterr().err


def test_a_question_is_written_in_one_place() -> None:
    with pytest.raises(ValueError, match=r"lm_eval\.doc_to_text, not in question"):
        MultipleChoiceParameters.model_validate({"lm_eval": {}, "question": "Q: {prompt}"})
    # What is not set is not part of a registration.
    assert "lm_eval" not in MultipleChoiceParameters().model_dump(mode="json")


def test_a_task_of_the_library_has_its_own_words() -> None:
    for other in ({"lm_eval": {}}, {"question": "Q: {prompt}"}):
        with pytest.raises(ValueError, match="has its own words: neither lm_eval nor question"):
            MultipleChoiceParameters.model_validate({"lm_eval_task": "arc_easy", **other})
    assert "lm_eval_task" not in MultipleChoiceParameters().model_dump(mode="json")


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
    for fields, other in zip(theirs, ours, strict=True):
        assert fields["prompt_tokens"] == other["prompt_tokens"]
        for score, choice in zip(fields["choices"], other["choices"], strict=True):
            assert (score["tokens"], score["bytes"]) == (choice["tokens"], choice["bytes"])
            assert score["nats"] == pytest.approx(choice["nats"], rel=1e-4)
    best = [min(range(len(row["choices"])), key=lambda k, row=row: row["choices"][k]["nats"]) for row in theirs]
    right = [item.constraint["answer"] == place + 1 for item, place in zip(questions(), best, strict=True)]
    # The library's own figure of the same run is a claim, and agrees.
    assert done.facts["lm_eval"]["states"]["acc,none"] == pytest.approx(sum(right) / 3)


def test_a_question_that_the_library_would_cut_is_refused(tmp_path: Path, model: Path) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed (the extra 'lm-eval')")
    long = questions()[0].model_copy(update={"prompt": "the old house and the sea " * 200})
    with pytest.raises(ValueError, match=r"'q0' with a choice has \d+ tokens, the model reads \d+"):
        choose(job_of(tmp_path, model, [long], lm_eval=TASK))


DOCUMENTS: list[dict[str, Any]] = [
    {
        "question": "Which one is wet?",
        "choices": {"text": ["the old house", "the sea", "a list"], "label": ["A", "B", "C"]},
        "answerKey": "B",
    },
    {
        "question": "Which one purrs? {{ question }}",
        "choices": {"text": ["a song", "the cat"], "label": ["1", "2"]},
        "answerKey": "2",
    },
]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> list[Item]:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed (the extra 'lm-eval')")
    return items_of("arc_easy", DOCUMENTS, tmp_path_factory.mktemp("imported"))


def test_a_task_of_the_library_asks_local_documents_in_its_own_words(
    tmp_path: Path, model: Path, imported: list[Item]
) -> None:
    """Kills: another text or right choice than the task's, documents in another order."""
    assert [(item.id, item.prompt) for item in imported] == [
        ("arc_easy-0", "Question: Which one is wet?\nAnswer:"),
        ("arc_easy-1", "Question: Which one purrs? {{ question }}\nAnswer:"),
    ]
    assert [(choices_of(item), answer_of(item)) for item in imported] == [
        (("the old house", "the sea", "a list"), 1),
        (("a song", "the cat"), 1),
    ]
    job = job_of(tmp_path / "theirs", model, imported[::-1], lm_eval_task="arc_easy")
    done = choose(job)
    assert done.facts["lm_eval"]["version"] and set(done.facts["lm_eval"]["states"]) >= {"acc,none"}
    plain = [item.model_copy(update={"prompt": item.prompt.split("\n")[0]}) for item in imported[::-1]]
    own = job_of(tmp_path / "ours", model, plain, question="{prompt}\nAnswer:")
    choose(own)
    theirs, ours = rows_of(job), rows_of(own)
    assert [row["item"] for row in theirs] == ["arc_easy-1", "arc_easy-0"]
    for fields, other in zip(theirs, ours, strict=True):
        assert fields["prompt_tokens"] == other["prompt_tokens"]
        for score, choice in zip(fields["choices"], other["choices"], strict=True):
            assert score["nats"] == pytest.approx(choice["nats"], rel=1e-4)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (
            {"prompt": "Question: Which one is dry?\nAnswer:"},
            "asked 'arc_easy-0' in other words: 'Question: Which one is",
        ),
        ({"answer": 3}, "asked 'arc_easy-0' with other choices, or with another right choice"),
        ({"choice_1": "a car"}, "asked 'arc_easy-0' with other choices"),
        ({"document": "[1]"}, "'arc_easy-0' holds no document for a task of lm-eval"),
    ],
)
def test_items_that_are_not_what_the_task_asks_are_refused(
    tmp_path: Path, model: Path, imported: list[Item], changed: dict[str, Any], what: str
) -> None:
    item = imported[0]
    constraint = item.constraint | {key: value for key, value in changed.items() if key != "prompt"}
    other = item.model_copy(update={"prompt": changed.get("prompt", item.prompt), "constraint": constraint})
    with pytest.raises(ValueError, match=what):
        choose(job_of(tmp_path, model, [other], lm_eval_task="arc_easy"))


@pytest.mark.parametrize(
    ("task", "what"),
    [
        ("gsm8k", "'gsm8k' of lm-eval is of type generate_until; choose scores multiple_choice"),
        ("mmlu", "'mmlu' of lm-eval is a group, not one task"),
        ("arc_eazy", r"lm-eval 0\.\S+ has no task 'arc_eazy'"),
    ],
)
def test_other_tasks_of_the_library_are_refused(task: str, what: str) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed (the extra 'lm-eval')")
    with pytest.raises(ValueError, match=what):
        of_the_library(task)
