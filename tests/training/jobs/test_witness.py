"""A witness on tiny models: real jobs leave answers, and the granted weights read them again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from specs.stages.base.artifacts import Item
from specs.stages.base.stage import Kind
from specs.stages.base.witness import GREEDY_GAP, NUCLEUS, TILTS, Copies
from testing.fixtures.critic_jobs import lines
from testing.fixtures.small_text import WORDS, small_model
from testing.fixtures.stage_jobs import stage_job
from testing.fixtures.witnessed_jobs import Edit, witnessed
from training.jobs.evaluation.evaluate import evaluate
from training.jobs.generation.generate import generate
from training.jobs.job import Job
from training.jobs.witness.prompted_answers import PromptedAnswer, UnusableRow

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("other"), seed=5)


def ran(folder: Path, kind: Kind, model: Path, **parameters: Any) -> Job:
    """Run a job on seven short prompts."""
    items = [
        Item(
            id=f"i{n}", group=f"g{n}", kind="lowercase", prompt=f"{WORDS[n]} a {'short ' * (n % 3)}tale", constraint={}
        )
        for n in range(7)
    ]
    role = "prompts" if kind == "generate" else "items"
    inputs = {"model": model, role: lines(folder / "items.jsonl", items)}
    job = stage_job(folder, kind, inputs, "base", **parameters)
    {"evaluate": evaluate, "generate": generate}[kind](job)
    return job


def greedy(folder: Path, model: Path, **changes: Any) -> Job:
    arguments = {"prompting": "wrapped", "wrapper": "{prompt}", "max_new_tokens": 12, "batch_size": 3, "seed": 3}
    return ran(folder, "evaluate", model, **arguments | changes)


def sampled(folder: Path, model: Path, **changes: Any) -> Job:
    arguments = {
        "samples_per_prompt": 6,
        "temperature": 0.8,
        "top_p": 0.9,
        "max_new_tokens": 12,
        "batch_size": 6,
        "seed": 3,
        "wrapper": "{prompt}",
    }
    return ran(folder, "generate", model, worked_example=False, **arguments | changes)


def first(name: str, value: Any) -> Edit:
    """Edit the first row."""

    def edit(rows: list[dict[str, Any]]) -> None:
        rows[0][name] = value(rows[0][name]) if callable(value) else value

    return edit


def without_last(ids: list[int]) -> list[int]:
    return ids[:-1]


def unknown(ids: list[int]) -> list[int]:
    return [10**6, *ids[1:]]


def test_every_token_of_an_honest_greedy_answer_has_the_largest_logit(tmp_path: Path, model: Path) -> None:
    rows = witnessed(greedy(tmp_path / "job", model))
    assert [row.row for row in rows] == list(range(7))
    assert all(row.text and row.ending and row.drawn is None for row in rows)
    assert max(row.gap or 0 for row in rows) <= GREEDY_GAP["float32"]


@pytest.mark.parametrize("name", ["prompt_digest", "prompt_tokens"])
def test_a_row_that_states_another_prompt_is_reported(tmp_path: Path, model: Path, name: str) -> None:
    job = greedy(tmp_path / "job", model)
    states = [json.loads(line) for line in (job.out / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len({row["prompt_digest"] for row in states}) == 7, "each row holds the digest of its own prompt"
    rows = witnessed(job, edit=first(name, states[1]["prompt_digest"] if name == "prompt_digest" else 57))
    assert [row.prompt for row in rows] == [False] + [True] * 6


def test_answers_of_other_weights_are_reported(tmp_path: Path, model: Path, other: Path) -> None:
    rows = witnessed(greedy(tmp_path / "job", other), model)
    assert sum((row.gap or 0) > GREEDY_GAP["float32"] for row in rows) >= 6


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (first("output", "a better answer"), "text"),
        (first("answer_ids", without_last), "text"),
        (first("finish", "eos"), "ending"),
    ],
    ids=["text", "ids", "end"],
)
def test_what_was_repaired_afterwards_is_reported(tmp_path: Path, model: Path, edit: Edit, what: str) -> None:
    job = greedy(tmp_path / "job", model)
    data = json.loads((job.out / "rows.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert data["finish"] == "length", "the edits below are of an answer that hit the limit"

    def repaired(rows: list[dict[str, Any]]) -> None:
        edit(rows)
        rows[0]["truncated"] = rows[0]["finish"] == "length"

    witness_rows = witnessed(job, edit=repaired)
    assert not getattr(witness_rows[0], what)
    assert all(row.text and row.ending for row in witness_rows[1:])


def test_a_greedy_answer_with_one_other_token_is_reported(tmp_path: Path, model: Path) -> None:
    def edit(rows: list[dict[str, Any]]) -> None:
        rows[0]["answer_ids"][4] = rows[0]["answer_ids"][4] % 40 + 7

    assert (witnessed(greedy(tmp_path / "job", model), edit=edit)[0].gap or 0) > GREEDY_GAP["float32"]


def test_another_item_s_answer_and_a_row_without_ids_are_refused(tmp_path: Path, model: Path) -> None:
    with pytest.raises(UnusableRow, match="not an answer to item 0"):
        witnessed(greedy(tmp_path / "a" / "job", model), edit=first("item", "i1"))
    with pytest.raises(UnusableRow, match="row 0 has no token ids"):
        witnessed(greedy(tmp_path / "b" / "job", model), edit=first("answer_ids", None))
    with pytest.raises(UnusableRow, match="does not know"):
        witnessed(greedy(tmp_path / "c" / "job", model), edit=first("answer_ids", unknown))


def granted(job: Job, **parameters: Any) -> Job:
    """Return the job as if these parameters had been granted to it."""
    job.order = job.order.model_copy(update={"parameters": job.order.parameters | parameters})
    return job


def several(folder: Path, model: Path, **changes: Any) -> Job:
    """Answer each of the items four times."""
    return greedy(folder, model, **{"temperature": 2.0, "samples_per_item": 4, "batch_size": 6} | changes)


def read(job: Job) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (job.out / "rows.jsonl").read_text(encoding="utf-8").splitlines()]


def test_several_answers_to_an_item_are_drawn_apart_and_read_again(tmp_path: Path, model: Path) -> None:
    job = several(tmp_path / "job", model)
    rows = read(job)
    assert [(row["item"], row.get("sample", 0)) for row in rows] == [(f"i{n}", k) for n in range(7) for k in range(4)]
    assert len({tuple(row["answer_ids"]) for row in rows}) == 28
    assert read(several(tmp_path / "small" / "job", model, batch_size=1)) == rows
    assert read(several(tmp_path / "seed" / "job", model, seed=4)) != rows
    reading = witnessed(job)
    assert len(reading) == 28 and all(row.text and row.ending and row.noise for row in reading)
    assert max(row.gap or 0 for row in reading) <= GREEDY_GAP["float32"]


def test_greedy_rows_hold_nothing_of_samples(tmp_path: Path, model: Path) -> None:
    assert all("sample" not in row for row in read(greedy(tmp_path / "job", model)))


def test_the_best_of_several_answers_in_the_place_of_all_is_reported(tmp_path: Path, model: Path) -> None:
    def repeat_third(rows: list[dict[str, Any]]) -> None:
        for place in (0, 1, 3):
            rows[place] = rows[2] | {"sample": place}

    reading = witnessed(several(tmp_path / "job", model), edit=repeat_third)
    assert [row.row for row in reading if (row.gap or 0) > GREEDY_GAP["float32"]] == [0, 1, 3]


def test_answers_in_another_order_than_that_of_their_items_are_refused(tmp_path: Path, model: Path) -> None:
    def swap(rows: list[dict[str, Any]]) -> None:
        rows[0], rows[1] = rows[1], rows[0]

    with pytest.raises(UnusableRow, match="row 0 is not an answer to item 0, sample 0"):
        witnessed(several(tmp_path / "job", model), edit=swap)


def test_every_token_of_an_honest_sample_is_the_one_that_its_noise_draws(tmp_path: Path, model: Path) -> None:
    rows = witnessed(sampled(tmp_path / "job", model))
    assert len(rows) == 42 and all(row.text and row.ending and row.noise and row.drawn is None for row in rows)
    assert max(row.gap or 0 for row in rows) <= GREEDY_GAP["float32"]
    assert max(row.beyond or 0 for row in rows) <= NUCLEUS["float32"]


def test_each_sample_has_draws_of_its_own_whatever_else_is_in_its_batch(tmp_path: Path, model: Path) -> None:
    def answers(folder: str, **changes: Any) -> list[list[int]]:
        lines = (sampled(tmp_path / folder / "job", model, **changes).out / "rows.jsonl").read_bytes().splitlines()
        return [json.loads(line)["answer_ids"] for line in lines]

    rows = answers("whole", temperature=2.0, top_p=1.0)
    assert len(set(map(tuple, rows))) == 42
    assert answers("small", temperature=2.0, top_p=1.0, batch_size=1) == rows
    assert answers("few", temperature=2.0, top_p=1.0, max_prompts=3)[:6] in (rows[:6], rows[12:18], rows[6:12])


@pytest.mark.parametrize(
    ("used", "granted_parameters"),
    [
        ({"seed": 4}, {"seed": 3}),
        ({"temperature": 0.8}, {"temperature": 1.0}),
        ({"temperature": 0.8}, {"temperature": 0.7}),
        ({"wrapper": "{prompt} "}, {"wrapper": "{prompt}"}),
    ],
    ids=["another seed", "colder", "hotter", "another prompt"],
)
def test_samples_that_were_drawn_otherwise_than_granted_are_reported_row_by_row(
    tmp_path: Path, model: Path, used: dict[str, Any], granted_parameters: dict[str, Any]
) -> None:
    """Of twelve tokens each; a language model's answers are longer and its logits further apart."""
    rows = witnessed(granted(sampled(tmp_path / "job", model, top_p=1.0, **used), **granted_parameters))
    assert sum((row.gap or 0) > GREEDY_GAP["float32"] for row in rows) >= 12


def test_a_sample_in_the_place_of_another_is_reported(tmp_path: Path, model: Path) -> None:
    def swapped(rows: list[dict[str, Any]]) -> None:
        for first, second in ((0, 1), (12, 13)):
            numbers = rows[first]["sample"], rows[second]["sample"]
            rows[first], rows[second] = rows[second], rows[first]
            rows[first]["sample"], rows[second]["sample"] = numbers

    rows = witnessed(sampled(tmp_path / "job", model, temperature=2.0, top_p=1.0), edit=swapped)
    assert [row.row for row in rows if (row.gap or 0) > GREEDY_GAP["float32"]] == [0, 1, 12, 13]


def test_tokens_of_a_wider_nucleus_lie_outside(tmp_path: Path, model: Path) -> None:
    wide = sampled(tmp_path / "job", model, top_p=1.0)
    assert sum((row.beyond or 0) > NUCLEUS["float32"] for row in witnessed(granted(wide, top_p=0.5))) >= 30


def test_samples_whose_noise_is_not_known_are_read_for_their_likelihood(tmp_path: Path, model: Path) -> None:
    rows = witnessed(granted(sampled(tmp_path / "job", model), engine="continuous"))
    assert all(row.gap is None and not row.noise for row in rows)
    assert all(token.before < 1 and token.own > 0 for row in rows for token in row.drawn or ())
    assert max(row.beyond or 0 for row in rows) <= NUCLEUS["float32"]


def test_a_penalty_for_repeats_is_part_of_what_was_granted(tmp_path: Path, model: Path) -> None:
    from training.engines.checkpoint import load
    from training.engines.engine import BatchedEngine
    from training.engines.token_sampling import TokenSampling
    from training.jobs.witness.prompted_answers import answer
    from training.jobs.witness.reading import read

    loaded, tokenizer = load(model)
    prompts = [tokenizer(f"{word} a tale", add_special_tokens=False)["input_ids"] for word in WORDS[:4]]
    sampling = TokenSampling(12, repetition_penalty=1.3)
    outputs = [completion for (completion,) in BatchedEngine(loaded, tokenizer, 4).complete(prompts, sampling)]

    def gaps(read_with: TokenSampling) -> list[float]:
        answers = [
            answer(place, prompt, read_with, ids=completion.ids, text=completion.text, finish=completion.finish)
            for place, (prompt, completion) in enumerate(zip(prompts, outputs, strict=True))
        ]
        return [row.gap or 0.0 for row in read(loaded, tokenizer, answers)]

    assert max(gaps(sampling)) <= GREEDY_GAP["float32"] < max(gaps(sampling._replace(repetition_penalty=1.0)))


def test_a_token_at_the_border_of_the_nucleus_is_its_last() -> None:
    """Where sums in another order put it just outside, it is unlikely and not impossible."""
    import torch

    from training.jobs.witness.reading import _locate_draws  # pyright: ignore[reportPrivateUsage]

    logits = torch.tensor([[0.6, 0.3, 0.1]]).log()
    beyond, (last,) = _locate_draws(logits, [2], 1.0, 0.8999)
    assert beyond == pytest.approx(1e-4, abs=1e-6)
    assert (last.before, last.own) == (pytest.approx(0.9), pytest.approx(0.1))
    _, (inner,) = _locate_draws(logits, [1], 1.0, 0.8999)
    assert (inner.before, inner.own) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert inner.tilted == pytest.approx([math.log((2 / 3) ** tilt + (1 / 3) ** tilt) for tilt in TILTS])


def test_copies_among_all_rows_of_a_job_are_counted_once_each(tmp_path: Path, model: Path) -> None:
    def copied(rows: list[dict[str, Any]]) -> None:
        for number in (2, 4):
            rows[number] |= {name: value for name, value in rows[1].items() if name != "sample"}

    job = granted(sampled(tmp_path / "job", model, top_p=1.0, temperature=2.0), engine="continuous")
    copies = {row.row: row.copies for row in witnessed(job, edit=copied)}
    assert copies[0] is None and copies[6] is None, "no other answer to these prompts was read before"
    counted = {row: (item.same, item.of) for row, item in copies.items() if item is not None and row < 6}
    assert counted == {1: (0, 1), 2: (1, 2), 3: (0, 3), 4: (2, 4), 5: (0, 5)}
    (alone,) = witnessed(job, folder="second", places=(2,))
    assert alone.copies == Copies(same=2, of=5), "the others were not read, and count"
    assert all(row.copies is None for row in witnessed(greedy(tmp_path / "greedy" / "job", model)))


def test_a_copy_counts_wherever_it_is_and_only_among_answers_drawn_alike() -> None:
    from training.engines.token_sampling import TokenSampling
    from training.jobs.witness.prompted_answers import answer, copies_of

    def make_answer(row: int, ids: tuple[int, ...], prompt: int = 1, temperature: float = 1.0) -> PromptedAnswer:
        drawn = TokenSampling(9, temperature)
        return answer(row, (prompt,), drawn, ids=ids, text="", finish="eos")

    every = [
        make_answer(0, (4, 5)),
        make_answer(1, (4, 6)),
        make_answer(2, (4, 5)),
        make_answer(3, (4, 5), prompt=2),
        make_answer(4, (4, 5), temperature=0.5),
        make_answer(5, (4, 5)),
    ]

    def counted(*places: int) -> dict[int, tuple[int, int]]:
        copies = copies_of([every[place] for place in places], every)
        return {row: (item.same, item.of) for (row, _), item in copies.items()}

    assert counted(0) == {0: (2, 3)}
    assert counted(5, 0) == {0: (1, 2), 5: (2, 3)}, "of two that are read, only the later one counts the other"
    assert counted(3) == {} == counted(4), "no other answer was drawn alike"
    assert counted(*range(6)) == {1: (0, 1), 2: (1, 2), 5: (2, 3)}
    every[5] = every[5]._replace(again=True)
    assert counted(5) == {} and counted(0) == {0: (1, 2)}, "what is due to repeat another row counts nowhere"


def test_a_prompt_as_long_as_the_context_can_be_scored_and_a_longer_one_cannot(model: Path) -> None:
    from training.engines.checkpoint import load
    from training.jobs.witness.scoring import ScoredSpan, Scoring, StatedLogprob, score

    loaded, _ = load(model)
    limit = loaded.config.max_position_embeddings

    def scored(tokens: int) -> float:
        text = ScoredSpan((*(number % 40 + 7 for number in range(tokens)), 7), tokens)
        (row,) = score(loaded, "rows", [Scoring(0, {"label": StatedLogprob(-1.0, (text,))})])
        return row.scores["label"].read

    assert scored(limit) < 0
    with pytest.raises(ValueError, match="the model reads"):
        scored(limit + 1)


@pytest.mark.parametrize("temperature", [None, 0.8])
def test_answers_to_prompts_that_begin_alike_are_read_as_each_of_them_alone(
    model: Path, monkeypatch: pytest.MonkeyPatch, temperature: float | None
) -> None:
    """Together are answers to one prompt, to prompts with a common beginning, and to others of other lengths."""
    from training.engines.checkpoint import load
    from training.engines.token_sampling import TokenSampling
    from training.jobs.witness.prompted_answers import answer
    from training.jobs.witness.reading import read

    loaded, tokenizer = load(model)
    sampling, head = TokenSampling(9, temperature), [number % 40 + 7 for number in range(40)]
    prompts = (
        [head] * 3 + [[*head, *range(30, 34 + n)] for n in range(3)] + [list(range(9, 12 + 7 * n)) for n in (0, 1)]
    )
    answers = [
        answer(place, prompt, sampling, ids=tuple(range(20, 21 + place)), text="", finish="length")
        for place, prompt in enumerate(prompts)
    ]
    answers[7] = answers[7]._replace(ids=())
    widths, forward = list[int](), loaded.forward

    def watched(*values: Any, **named: Any) -> Any:
        widths.append(named["input_ids"].shape[1])
        return forward(*values, **named)

    monkeypatch.setattr(loaded, "forward", watched)
    together = sorted(read(loaded, tokenizer, answers), key=lambda row: row.row)
    _, beginning, rest = widths
    assert beginning == 39 and rest < 20, "what six prompts begin with is read once"
    alone = [row for prompted_answer in answers for row in read(loaded, tokenizer, [prompted_answer])]
    for row, other in zip(together, alone, strict=True):
        assert row.gap == pytest.approx(other.gap, abs=1e-4) and row.beyond == pytest.approx(other.beyond, abs=1e-6)
        near = [token.own for token in row.drawn or ()]
        assert near == pytest.approx([token.own for token in other.drawn or ()], abs=1e-6)
    assert len({row.tokens for row in together}) == 8


def test_texts_that_begin_alike_are_scored_as_each_of_them_alone(model: Path) -> None:
    """Together are labels after one prompt, long texts with a common beginning, and short ones of other lengths."""
    from training.engines.checkpoint import load
    from training.jobs.witness.scoring import ScoredSpan, Scoring, StatedLogprob, score

    loaded, _ = load(model)
    head = tuple(number % 40 + 7 for number in range(50))
    texts = [
        *(ScoredSpan((*head, *range(10, 12 + n), label), 52 + n) for n in range(4) for label in (20, 21)),
        *(ScoredSpan((*head, *range(30, 40 + n)), 45) for n in range(3)),
        *(ScoredSpan(tuple(range(9 + n, 30 + 7 * n)), 1 + n) for n in range(3)),
    ]

    def read(spans: list[ScoredSpan]) -> list[float]:
        rows = score(
            loaded, "rows", [Scoring(n, {"text": StatedLogprob(0.0, (span,))}) for n, span in enumerate(spans)]
        )
        return [row.scores["text"].read for row in rows]

    together = read(texts)
    assert together == pytest.approx([value for span in texts for value in read([span])], abs=1e-4)
    assert len(set(together)) == len(texts)
