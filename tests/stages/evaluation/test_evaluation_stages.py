"""The measuring stages on tiny models, against the plainest way there is to compute the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from specs.stages.base.artifacts import Item
from specs.stages.base.sampling import digest_ids
from specs.stages.base.stage import Kind, ModelKind
from specs.stages.evaluation.rows import EvaluationRow
from specs.stages.registry import STAGE_KINDS
from testing.fixtures.critic_jobs import lines
from testing.fixtures.small_text import WORDS, small_model
from testing.fixtures.stage_jobs import stage_job
from testing.fixtures.witnessed_jobs import mis_scored, rewrite, unwritten
from training.engines.checkpoint import load
from training.engines.engine import BatchedEngine
from training.engines.token_sampling import TokenSampling
from training.jobs.evaluation.evaluate import evaluate
from training.jobs.evaluation.likelihood import TokenWindow, continuation, nats_of, prefix_of, windows_of
from training.jobs.evaluation.multi_turn import converse
from training.jobs.evaluation.multiple_choice import choose
from training.jobs.evaluation.pairwise_judge import compare
from training.jobs.evaluation.perplexity import perplexity
from training.jobs.generation.generate import generate
from training.jobs.job import Job
from training.jobs.row_files import GroupedRows
from training.rules.prompt_encoding import dialogue_ids, prompt_ids

pytestmark = pytest.mark.integration

STAGES: dict[str, Any] = {
    "evaluate": evaluate,
    "perplexity": perplexity,
    "multiple_choice": choose,
    "pairwise_judge": compare,
    "multi_turn": converse,
    "generate": generate,
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("chat"), chat=True)


def items(count: int = 7) -> list[Item]:
    return [
        Item(
            id=f"i{n}",
            group=f"g{n}",
            kind="line",
            prompt=f"{WORDS[n % len(WORDS)]} a {'short ' * (n % 3)}tale",
            constraint={},
        )
        for n in range(count)
    ]


def job_of(
    folder: Path, kind: Kind, model: Path, values: list[Item], model_kind: ModelKind = "base", **parameters: Any
) -> Job:
    role = "prompts" if kind == "generate" else "items"
    inputs = {"model": model, role: lines(folder / "items.jsonl", values)}
    return stage_job(folder, kind, inputs, model_kind, **parameters)


def run(job: Job) -> list[dict[str, Any]]:
    STAGES[job.order.kind](job)
    return [json.loads(line) for line in (job.out / "rows.jsonl").read_text(encoding="utf-8").splitlines()]


def answered(folder: Path, model: Path, kind: ModelKind = "base", **parameters: Any) -> list[str]:
    job = job_of(folder, "evaluate", model, items(), kind, max_new_tokens=12, **parameters)
    return [row["output"] for row in run(job)]


def test_answers_are_byte_for_byte_those_of_one_call_of_the_engine(tmp_path: Path, chat: Path) -> None:
    """What ``evaluate`` wrote before answers were kept batch by batch."""
    job = job_of(tmp_path, "evaluate", chat, items(), "instruct", max_new_tokens=12, batch_size=3, seed=7)
    evaluate(job)
    model, tokenizer = load(chat)
    prompts = [prompt_ids(tokenizer, item.prompt, "chat").ids for item in items()]
    outputs = BatchedEngine(model, tokenizer, 3, share=False).complete(prompts, TokenSampling(12), seed=7)
    expected = b"".join(
        EvaluationRow(
            item=item.id,
            prompt_digest=digest_ids(prompt),
            prompt_tokens=len(prompt),
            output=output.text,
            output_tokens=len(output.ids),
            truncated=output.truncated,
            finish=output.finish,
            stop=output.stop,
            answer_ids=output.ids,
        )
        .model_dump_json()
        .encode()
        + b"\n"
        for item, prompt, (output,) in zip(items(), prompts, outputs, strict=True)
    )
    assert (job.out / "rows.jsonl").read_bytes() == expected


def test_conditions_differ_in_what_is_read_and_in_nothing_else(tmp_path: Path, base: Path, chat: Path) -> None:
    wrapper = "Instruction: {prompt}\nResponse:"
    raw = answered(tmp_path / "raw", chat, prompting="raw")
    wrapped = answered(tmp_path / "wrapped", chat, prompting="wrapped", wrapper=wrapper)
    native = answered(tmp_path / "native", chat, "instruct")
    assert raw != wrapped != native != raw
    # A wrapper that adds nothing is not a wrapper; the same weights without a template read the same raw text.
    assert answered(tmp_path / "bare", chat, prompting="wrapped", wrapper="{prompt}") == raw
    assert answered(tmp_path / "base", base, prompting="raw") == raw


def test_braces_in_a_prompt_mean_nothing_to_the_wrapper(tmp_path: Path, base: Path) -> None:
    odd = [items(1)[0].model_copy(update={"prompt": "Write JSON like {a} and {prompt}."})]
    job = job_of(tmp_path, "evaluate", base, odd, max_new_tokens=2, prompting="wrapped", wrapper="Q: {x} {prompt} A:")
    _, tokenizer = load(base)
    row = run(job)[0]
    assert row["prompt_tokens"] == len(tokenizer("Q: {x} Write JSON like {a} and {prompt}. A:")["input_ids"])


def test_an_answer_ends_before_its_stop_string_and_counts_as_whole(tmp_path: Path, base: Path) -> None:
    free = answered(tmp_path / "free", base, prompting="raw")
    stop = next(text[3:5] for text in free if len(text) > 8)
    rows = run(
        job_of(tmp_path / "stopped", "evaluate", base, items(), max_new_tokens=12, prompting="raw", stops=[stop])
    )
    for row, text in zip(rows, free, strict=True):
        assert row["output"] == text.split(stop)[0]
        if stop in text:
            assert (row["truncated"], row["finish"], row["stop"]) == (False, "stop", stop)
        else:
            assert row["finish"] == ("length" if row["truncated"] else "eos") and "stop" not in row


@pytest.mark.parametrize(
    "kind", ["evaluate", "perplexity", "multiple_choice", "multi_turn", "pairwise_judge", "generate"]
)
def test_a_stage_that_was_ended_goes_on_and_gives_the_same_rows(
    tmp_path: Path, base: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.jobs.evaluation.pairwise_judge.GROUP", 2)
    values = {"multiple_choice": make_questions(), "multi_turn": talks()}.get(kind, items())
    parameters: dict[str, Any] = {
        "pairwise_judge": {},
        "generate": {"batch_size": 4, "samples_per_prompt": 2, "max_new_tokens": 6, "worked_example": False},
        "evaluate": {"batch_size": 2, "max_new_tokens": 6},
        "perplexity": {"window": 6, "stride": 3},
        "multiple_choice": {},
        "multi_turn": {"max_new_tokens": 6},
    }[kind]
    made = compared if kind == "pairwise_judge" else partial(job_of, kind=kind, values=values)
    whole = run(made(tmp_path / "whole", model=base, **parameters))
    job = made(tmp_path / "ended", model=base, **parameters)

    class EarlyEnd(Exception):
        pass

    results: list[int] = []

    def ended(done: int, *_: Any, **__: Any) -> None:
        results.append(done)
        # The judge's labelled pairs take the first two groups.
        if len(results) == (3 if kind == "pairwise_judge" else 2):
            raise EarlyEnd

    monkeypatch.setattr(job, "progress", ended)
    with pytest.raises(EarlyEnd):
        STAGES[kind](job)
    monkeypatch.undo()
    monkeypatch.setattr("training.jobs.evaluation.pairwise_judge.GROUP", 2)
    shard = max(path for path in (job.folder / "shards").iterdir() if path.is_file())
    data = shard.read_bytes()
    # What a kill leaves of a group is cut off and written again.
    shard.write_bytes(data + b'{"item": "half a r')
    added: list[int] = []
    write = GroupedRows[Any].add

    def counted(rows: GroupedRows[Any], group: Sequence[Any]) -> None:
        added.append(len(group))
        write(rows, group)

    monkeypatch.setattr(GroupedRows, "add", counted)
    assert run(job) == whole
    content = shard.read_bytes()
    assert content.startswith(data) and b"half a r" not in content
    # No group was done twice.
    assert len(added) == content.count(b"}\n\n") - data.count(b"}\n\n") > 0


def brute_force(model: Any, whole: list[int], place: int, context: int) -> float:
    """Return the surprise of one token after the ``context`` tokens before it."""
    import torch

    before = whole[max(0, place - context) : place]
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([before])).logits[0, -1]
    return -float(torch.log_softmax(logits, -1)[whole[place]])


@pytest.mark.parametrize(("window", "stride"), [(64, 1), (6, 1), (6, 3), (5, 4), (2, 1)])
def test_perplexity_scores_every_token_once_with_the_context_its_window_gives(
    tmp_path: Path, base: Path, window: int, stride: int
) -> None:
    values = items(3)
    rows = run(job_of(tmp_path, "perplexity", base, values, window=window, stride=stride, batch_size=2))
    model, tokenizer = load(base)
    for item, row in zip(values, rows, strict=True):
        tokens = list(tokenizer(item.prompt)["input_ids"])
        whole = [prefix_of(tokenizer), *tokens]
        expected, scored, done = 0.0, 0, 1
        while done < len(whole):
            end = min(len(whole), window if done == 1 else done + stride)
            begin = max(0, end - window)
            for place in range(done, end):
                expected += brute_force(model, whole, place, place - begin)
                scored += 1
            done = end
        assert scored == row["tokens"] == len(tokens) and row["bytes"] == len(item.prompt)
        assert row["nats"] == pytest.approx(expected, rel=1e-4)


def test_windows_cover_every_token_once_and_keep_their_context() -> None:
    for count in range(1, 40):
        for window, stride in ((8, 3), (8, 7), (2, 1), (100, 50)):
            windows = list(windows_of(list(range(1, count + 1)), 0, window, stride))
            scored = [id for token_window in windows for id in token_window.ids[token_window.start :]]
            assert scored == list(range(1, count + 1))
            assert all(len(token_window.ids) <= window and token_window.start >= 1 for token_window in windows)
            assert all(token_window.start >= window - stride for token_window in windows[1:])
    assert list(windows_of([], 0, 8, 3)) == []


def test_more_context_surprises_less_or_the_window_would_not_matter(tmp_path: Path, base: Path) -> None:
    rows = [run(job_of(tmp_path / str(w), "perplexity", base, items(3), window=w, stride=1)) for w in (2, 64)]
    assert [row["nats"] for row in rows[0]] != [row["nats"] for row in rows[1]]


def test_what_cannot_be_scored_is_refused(base: Path, tmp_path: Path) -> None:
    model, _ = load(base)
    with pytest.raises(ValueError, match="scores no token"):
        nats_of(model, [TokenWindow((1, 2), 2)], batch_size=1)
    with pytest.raises(ValueError, match="the model reads"):
        nats_of(model, [TokenWindow(tuple([1] * 100_000), 1)], batch_size=1)
    empty = [items(1)[0].model_copy(update={"prompt": ""})]
    with pytest.raises(ValueError, match="is empty"):
        run(job_of(tmp_path, "perplexity", base, empty))


def make_questions() -> list[Item]:
    return [
        Item(
            id=f"q{n}",
            group=f"g{n}",
            kind="fact",
            prompt=f"tell about the {WORDS[n + 3]}",
            constraint={"choice_1": "rain", "choice_2": "the old house and the sea", "answer": 1},
        )
        for n in range(4)
    ]


def test_a_choice_is_scored_token_by_token_after_its_question(tmp_path: Path, base: Path) -> None:
    rows = run(job_of(tmp_path, "multiple_choice", base, make_questions(), batch_size=3))
    model, tokenizer = load(base)
    for item, row in zip(make_questions(), rows, strict=True):
        context = list(tokenizer(f"Question: {item.prompt}\nAnswer:")["input_ids"])
        for number, score in enumerate(row["choices"], 1):
            text = item.constraint[f"choice_{number}"]
            whole = list(tokenizer(f"Question: {item.prompt}\nAnswer: {text}")["input_ids"])
            assert whole[: len(context)] == context and score["tokens"] == len(whole) - len(context)
            value = sum(brute_force(model, whole, place, place) for place in range(len(context), len(whole)))
            assert score["nats"] == pytest.approx(value, rel=1e-4)
            assert score["bytes"] == len(str(text))


def test_a_border_that_the_tokenizer_melts_is_scored_whole(base: Path) -> None:
    _, tokenizer = load(base)
    window = continuation(tokenizer, "a sh", "ort")
    assert tokenizer.decode(list(window.ids)) == "a short"
    before = list(tokenizer("a sh")["input_ids"])
    assert window.ids[: window.start] == tuple(before[: window.start]) and window.start < len(window.ids)


def talks() -> list[Item]:
    values: list[dict[str, str | int]] = [
        {"turn_2": "name the cat", "forbid_2": "dog"},
        {"turn_2": "tell a tale", "turn_3": "a short song", "require_3": "sea"},
        {"turn_2": "write a list", "most_words_2": 4},
    ]
    return [
        Item(id=f"c{n}", group=f"g{n}", kind="memory", prompt=f"write about {WORDS[n + 8]}", constraint=row)
        for n, row in enumerate(values)
    ]


@pytest.mark.parametrize("prompting", ["transcript", "raw", "native"])
def test_a_conversation_goes_on_from_what_was_answered(tmp_path: Path, chat: Path, prompting: Any) -> None:
    job = job_of(tmp_path, "multi_turn", chat, talks(), "instruct", max_new_tokens=8, prompting=prompting, batch_size=8)
    rows = run(job)
    model, tokenizer = load(chat)
    assert [len(row["turns"]) for row in rows] == [2, 3, 2]
    for item, row in zip(talks(), rows, strict=True):
        messages = [item.prompt, *(str(value) for key, value in item.constraint.items() if key.startswith("turn_"))]
        history: list[tuple[str, str]] = []
        for user, turn in zip(messages, row["turns"], strict=True):
            if prompting == "transcript":
                text = "".join(f"User: {u}\nAssistant: {a}\n" for u, a in history) + f"User: {user}\nAssistant:"
                ids = list(tokenizer(text)["input_ids"])
            elif prompting == "raw":
                ids = list(tokenizer("".join(f"{u}\n\n{a}\n\n" for u, a in history) + f"{user}\n\n")["input_ids"])
            else:
                names = ("user", "assistant")
                turns = [{"role": r, "content": t} for pair in history for r, t in zip(names, pair, strict=True)]
                ids = list(dialogue_ids(tokenizer, [*turns, {"role": "user", "content": user}], "chat").ids)
            ((output,),) = BatchedEngine(model, tokenizer, 1).complete([ids], TokenSampling(8))
            text = output.text
            for stop in ("\nUser:", "\nAssistant:"):
                text = text.split(stop)[0]
            assert (turn["user"], turn["output"], turn["prompt_tokens"]) == (user, text, len(ids))
            assert turn["finish"] == ("stop" if text != output.text else "length" if turn["truncated"] else "eos")
            history.append((user, turn["output"].strip()))


def test_without_history_every_turn_is_asked_alone(tmp_path: Path, base: Path) -> None:
    whole = run(job_of(tmp_path / "whole", "multi_turn", base, talks(), max_new_tokens=8))
    none = run(job_of(tmp_path / "none", "multi_turn", base, talks(), max_new_tokens=8, history="none"))
    assert [row["turns"][0] for row in whole] == [row["turns"][0] for row in none]
    assert [row["turns"][1] for row in whole] != [row["turns"][1] for row in none]
    _, tokenizer = load(base)
    assert none[1]["turns"][2]["prompt_tokens"] == len(tokenizer("User: a short song\nAssistant:")["input_ids"])


def answers_file(folder: Path, name: str, words: str) -> Path:
    rows = [
        EvaluationRow(item=item.id, prompt_tokens=3, output=f"{words} {item.id}", output_tokens=3, truncated=False)
        for item in items(4)
    ]
    return lines(folder / f"{name}.jsonl", rows)


def compared(folder: Path, model: Path, **parameters: Any) -> Job:
    labelled = [
        Item(
            id=f"l{n}",
            group=f"l{n}",
            kind="line",
            prompt="tell a tale",
            constraint={"reference": f"a cat {n}", "candidate": f"the sea {n}", "label": ("reference", "tie")[n % 2]},
        )
        for n in range(4)
    ]
    inputs = {
        "model": model,
        "items": lines(folder / "items.jsonl", items(4)),
        "reference": answers_file(folder, "reference", "a cat"),
        "candidate": answers_file(folder, "candidate", "the old house"),
        "labelled": lines(folder / "labelled.jsonl", labelled),
    }
    return stage_job(folder, "pairwise_judge", inputs, "base", form="completion", **parameters)


def test_a_judge_sees_both_orders_and_its_preference_follows_from_them(tmp_path: Path, base: Path) -> None:
    job = compared(tmp_path, base)
    rows = run(job)
    for row in rows:
        plain, swapped = row["plain"]["scores"], row["swapped"]["scores"]
        assert plain["prompt"] != swapped["prompt"]
        first = max(x for x in (plain["a"], plain["a_spaced"]) if x is not None) > max(
            x for x in (plain["b"], plain["b_spaced"]) if x is not None
        )
        last = max(x for x in (swapped["b"], swapped["b_spaced"]) if x is not None) > max(
            x for x in (swapped["a"], swapped["a_spaced"]) if x is not None
        )
        text = {(True, True): "reference", (False, False): "candidate"}.get((first, last))
        assert row["preferred"] == text
    calibration = (job.out / "calibration.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["item"] for line in calibration] == ["l0", "l1", "l2", "l3"]


def test_the_sides_of_a_comparison_can_change_places(tmp_path: Path, base: Path) -> None:
    job = compared(tmp_path / "one", base)
    rows = run(job)
    turned = compared(tmp_path / "two", base)
    turned.inputs["reference"], turned.inputs["candidate"] = turned.inputs["candidate"], turned.inputs["reference"]
    back = {"reference": "candidate", "candidate": "reference", None: None}
    assert [row["preferred"] for row in run(turned)] == [back[row["preferred"]] for row in rows]


def test_an_item_without_an_answer_cannot_be_compared(tmp_path: Path, base: Path) -> None:
    job = compared(tmp_path, base)
    path = job.inputs["candidate"]
    path.write_text("\n".join(path.read_text(encoding="utf-8").splitlines()[:-1]) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="1 answer is missing, for example one to 'i3'"):
        compare(job)


@pytest.mark.parametrize("history", ["whole", "shuffled", "none"])
def test_a_witness_reads_the_turns_of_a_conversation_as_they_were_asked(
    tmp_path: Path, chat: Path, history: str
) -> None:
    # Histories are exchanged between kinds.
    values = [item.model_copy(update={"kind": f"memory {n}"}) for n, item in enumerate(talks())]
    job = job_of(tmp_path / "job", "multi_turn", chat, values, "instruct", max_new_tokens=8, history=history)
    run(job)
    assert unwritten(job) == set()
    other = small_model(tmp_path / "other", chat=True, seed=4)
    assert unwritten(job, other, "other") == {0, 1, 2}


def scored_job(folder: Path, kind: Kind, model: Path) -> Job:
    """Return a job of a kind whose rows are scores, after it ran."""
    if kind == "pairwise_judge":
        job = compared(folder, model)
    elif kind == "perplexity":
        job = job_of(folder, kind, model, items(5), window=6, stride=3, batch_size=2)
    else:
        job = job_of(folder, kind, model, make_questions())
    run(job)
    return job


def better(row: dict[str, Any]) -> None:
    """Make a text likelier by a twentieth of a nat."""
    row["nats"] -= 0.05


def longer(row: dict[str, Any]) -> None:
    """Divide the surprise of a text by more tokens."""
    row["tokens"] += 1


def swapped_choices(row: dict[str, Any]) -> None:
    """Give two choices each other's likelihood."""
    first, second = row["choices"]
    first["nats"], second["nats"] = second["nats"], first["nats"]


def of_another(row: dict[str, Any]) -> None:
    """Print that the row is of another question."""
    row["item"] = "q0"


def shorter_choice(row: dict[str, Any]) -> None:
    """Divide the surprise of a choice by more bytes."""
    row["choices"][0]["bytes"] += 3


def shifted(row: dict[str, Any]) -> None:
    """Make both orders say less clearly what they say, with the margins that follow."""
    for order in ("plain", "swapped"):
        scores = row[order]["scores"]
        scores["a"] = round(scores["a"] - 0.1, 6)
        a, a_spaced, b, b_spaced = (-99.0 if scores[name] is None else scores[name] for name in LABELS)
        row[order]["margin"] = round(abs(max(a, a_spaced) - max(b, b_spaced)), 6)


def decided(row: dict[str, Any]) -> None:
    """Turn the verdict, and nothing else."""
    row["preferred"] = "candidate" if row["preferred"] == "reference" else "reference"


LABELS = ("a", "a_spaced", "b", "b_spaced")


@pytest.mark.parametrize(
    ("kind", "edits"),
    [
        ("perplexity", (better, longer)),
        ("multiple_choice", (swapped_choices, of_another, shorter_choice)),
        ("pairwise_judge", (shifted, decided)),
    ],
)
def test_a_witness_scores_what_was_granted(
    tmp_path: Path, base: Path, kind: Kind, edits: Sequence[Callable[[dict[str, Any]], None]]
) -> None:
    job = scored_job(tmp_path / "job", kind, base)
    honest = mis_scored(job)
    assert set(honest) == set(STAGE_KINDS[kind].scores_of(job.parameters)) and not any(honest.values())
    other = small_model(tmp_path / "other", seed=4)
    assert all(len(wrong) >= 4 for wrong in mis_scored(job, "other", model=other).values())
    for place, edit in enumerate(edits):
        rewrite(job, "rows", lambda rows, place=place, edit=edit: edit(rows[place]))
    assert mis_scored(job, "edited") == honest | {"rows": set(range(len(edits)))}


def test_scores_of_other_items_are_found_and_those_that_lm_eval_asked_are_believed(tmp_path: Path, base: Path) -> None:
    job = scored_job(tmp_path / "job", "multiple_choice", base)
    others = [item.model_copy(update={"prompt": f"{item.prompt} and the sea"}) for item in make_questions()]
    job.order.inputs["items"] = job.order.inputs["items"].model_copy(
        update={"path": str(lines(tmp_path / "others.jsonl", others))}
    )
    assert mis_scored(job)["rows"] == {0, 1, 2, 3}
    kind = STAGE_KINDS["multiple_choice"]
    assert kind.scores_of(kind.parameters()) == ("rows",)
    assert kind.scores_of(kind.parameters.model_validate({"lm_eval_task": "arc_easy"})) == ()
