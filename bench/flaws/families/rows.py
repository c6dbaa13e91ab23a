"""Rows that the granted weights did not write: answers, samples and scores."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

from bench.flaws.lying import other_parameters, shake
from bench.flaws.operator import Operator, Row
from testing.fixtures.tiny_training import write_lines
from training.engines.checkpoint import tokenizer_in
from training.engines.engine_factory import make_engine
from training.engines.token_sampling import TokenSampling
from training.jobs.job import Job
from training.jobs.row_files import lines_of
from training.rules.prompt_encoding import form_of, item_ids, sample_ids
from training.rules.tasks import load_items, reference, verifier

ROWS, SCORES = ("witness.answers",), ("witness.scores",)
_ENDING = ("output", "output_tokens", "finish", "stop", "answer_ids", "truncated")


def _repair(rows: list[Row], _: Path) -> None:
    for row in rows[::3]:
        row["output"] = '"' + row["output"].strip('"').title() + '"'


def _drop(rows: list[Row], _: Path) -> None:
    del rows[::5]


def _repeat(rows: list[Row], _: Path) -> None:
    for row in rows[1:]:
        row |= {name: value for name, value in rows[0].items() if name != "item"}


def _other_order(rows: list[Row], _: Path) -> None:
    texts = [{name: value for name, value in row.items() if name != "item"} for row in rows]
    for row, text in zip(rows, [*texts[1:], texts[0]], strict=True):
        row |= text


def _ids(rows: list[Row], _: Path) -> None:
    drawn = random.Random(0)
    for row in rows:
        for name in [name for name, value in row.items() if name.endswith("ids") and isinstance(value, list) and value]:
            row[name] = [*row[name][:-1], drawn.randrange(100)]


def _not_truncated(rows: list[Row], _: Path) -> None:
    for row in rows:
        row["truncated"] = not row["truncated"]


_HARDLY_TRAINED = (("2e-3, warmup_ratio: 0, epochs: 3", "5e-4, warmup_ratio: 0, epochs: 1"),)
"""So that some of the treatment's answers are wrong."""


def _few(job: Job) -> None:
    """Write right answers in the place of four wrong ones, as if the model had given them."""
    items, judge = load_items(job.inputs["items"]), verifier(job.order.task)
    rows = read_lines(job.out / "rows.jsonl")
    wrong = [item for item, row in zip(items, rows, strict=True) if not judge(item, row["output"]).passed]
    _rewrite(job, {item.id: reference(job.order.task, item) or "" for item in wrong[:4]})


def _rewrite(job: Job, texts: dict[str, str]) -> None:
    """Write other answers in the place of the job's, with token ids and counts that belong to them."""
    tokenizer: Any = tokenizer_in(job.inputs["model"])
    rows = read_lines(job.out / "rows.jsonl")
    for row in rows:
        if row["item"] in texts:
            ids = [*tokenizer(texts[row["item"]], add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
            row |= {"output": texts[row["item"]], "answer_ids": ids, "output_tokens": len(ids), "truncated": False}
            row |= {"finish": "eos", "stop": None}
    write_lines(job.out / "rows.jsonl", rows)


def read_lines(path: Path) -> list[Row]:
    """Return the rows of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _ghost(job: Job) -> None:
    """Have another author write right answers to half of the items."""
    items = load_items(job.inputs["items"])
    _rewrite(job, {item.id: reference(job.order.task, item) or "" for item in items[::2]})


def _cut(job: Job) -> None:
    """Cut every answer after six tokens and say that it ended there."""
    tokenizer: Any = tokenizer_in(job.inputs["model"])
    rows = read_lines(job.out / "rows.jsonl")
    _rewrite(job, {row["item"]: tokenizer.decode(row["answer_ids"][:6], skip_special_tokens=True) for row in rows})


def _best_of_four(job: Job) -> None:
    """Sample four answers to each wrong one and state a right one among them as the greedy answer."""
    items, judge = load_items(job.inputs["items"]), verifier(job.order.task)
    rows = read_lines(job.out / "rows.jsonl")
    engine = make_engine("batched", job.inputs["model"], 16, scratch=job.folder, share=False)
    prompts = [item_ids(engine.tokenizer, item, job.parameters, form_of("instruct")) for item in items]
    drawn = engine.complete(prompts, TokenSampling(job.parameters.max_new_tokens, 1.0), samples=4, seed=1)
    for item, row, outputs in zip(items, rows, drawn, strict=True):
        right = next((output for output in outputs if judge(item, output.text).passed and not output.truncated), None)
        if right is not None and not judge(item, row["output"]).passed:
            row |= right.as_row() | {"truncated": False}
    write_lines(job.out / "rows.jsonl", rows)


def shaken_model(job: Job) -> None:
    """Work with weights that are a little off the granted ones."""
    other = job.folder / "other"
    shutil.copytree(job.inputs["model"], other)
    shake(other / "model.safetensors", 0.2)
    job.inputs["model"] = other


def _add_hint(job: Job) -> None:
    """Ask with a hint of the form that was not granted."""
    items = read_lines(job.inputs["items"])
    for row in items:
        row["prompt"] += " Mind the form."
    job.inputs["items"] = write_lines(job.folder / "hinted.jsonl", items)


def base_instead(job: Job) -> None:
    """Work with the session's untrained model."""
    entry = job.run.parents[1] / "spec.yaml"
    source = entry.read_text(encoding="utf-8").partition('"path:')[2].partition('"')[0]
    job.inputs["model"] = Path(source)


def _colder(job: Job) -> None:
    other_parameters(job, temperature=0.45)


def _hotter(job: Job) -> None:
    other_parameters(job, temperature=1.2)


def _greedy(job: Job) -> None:
    """State greedy answers in the place of the last two thirds of the samples."""
    rows = read_lines(job.out / "rows.jsonl")
    engine, counts = _prompt_ids_of(job, rows)
    outputs = engine.complete(counts, TokenSampling(job.parameters.max_new_tokens))
    for row, (output,) in list(zip(rows, outputs, strict=True))[len(rows) // 3 :]:
        row |= output.as_row("completion", "completion_tokens") | {"truncated": output.truncated}
    write_lines(job.out / "rows.jsonl", rows)
    _accept_again(job, rows)


def _copy_answers(job: Job) -> None:
    """State each prompt's first sample as its second too."""
    rows = read_lines(job.out / "rows.jsonl")
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        second |= {name: value for name, value in first.items() if name != "sample"}
    write_lines(job.out / "rows.jsonl", rows)
    _accept_again(job, rows)


def _prompt_ids_of(job: Job, rows: list[Row]) -> tuple[Any, list[list[int]]]:
    """Return an engine with the granted weights, and what it was asked for each row."""
    items = {item.id: item for item in load_items(job.inputs["prompts"])}
    engine = make_engine("batched", job.inputs["model"], 16, scratch=job.folder, share=False)
    form = form_of("instruct")
    prompts = [
        sample_ids(engine.tokenizer, item.prompt, _show_answer(job, item), job.parameters, form)
        for item in (items[row["item"]] for row in rows)
    ]
    return engine, prompts


def _kept_draws(job: Job) -> None:
    """Draw eight samples a prompt and hand on the first right ones, in the place of the first two drawn."""
    parameters, judge = job.parameters, verifier(job.order.task)
    items = {item.id: item for item in load_items(job.inputs["prompts"])}
    rows = read_lines(job.out / "rows.jsonl")
    engine, counts = _prompt_ids_of(job, rows)
    sampling = TokenSampling(
        parameters.max_new_tokens, parameters.temperature, parameters.top_p, stops=parameters.stops
    )
    for row, outputs in zip(rows, engine.complete(counts, sampling, samples=8, seed=5), strict=True):
        right = next((output for output in outputs if judge(items[row["item"]], output.text).passed), None)
        if right is not None and not right.truncated:
            row |= right.as_row("completion", "completion_tokens") | {"truncated": False}
    write_lines(job.out / "rows.jsonl", rows)
    _accept_again(job, rows)


def _show_answer(job: Job, item: Any) -> Any:
    from training.rules.tasks import worked_example

    return worked_example(job.order.task, item) if job.parameters.worked_example else None


def _accept_again(job: Job, rows: list[Row]) -> None:
    from specs.stages.generation.rows import GenerationRow
    from training.jobs.generation.generate import accept

    examples = accept(job.order.task, load_items(job.inputs["prompts"]), [GenerationRow(**row) for row in rows])
    (job.out / "accepted.jsonl").write_bytes(lines_of(examples))


def _edited_accepted(rows: list[Row], _: Path) -> None:
    for row in rows[::3]:
        row["completion"] = row["completion"].replace("today", "every day of my life")


def _dropped_samples(rows: list[Row], _: Path) -> None:
    rows[:] = [row for row in rows if not row["completion"].istitle()] or rows[::2]


def _lower_surprise(rows: list[Row], _: Path) -> None:
    for row in rows:
        row["nats"] *= 0.9


def _moved_choices(rows: list[Row], _: Path) -> None:
    for row in rows[::4]:
        row["choices"] = row["choices"][::-1]


def _fewer_texts(rows: list[Row], _: Path) -> None:
    rows.sort(key=lambda row: row["nats"] / row["bytes"])
    del rows[len(rows) // 2 :]


def _invented_critic(rows: list[Row], _: Path) -> None:
    """Invent log-probabilities under which every response is good, and the verdicts that follow from them."""
    for row in rows:
        for name, good in (("plain", "A"), ("swapped", "B")):
            scores = row[name]["scores"]
            for label in "ab":
                for form in (label, f"{label}_spaced"):
                    if scores[form] is not None:
                        scores[form] = -0.2 if label.upper() == good else -2.2
            row[name] |= {"good_label": good, "good": True, "margin": 2.0, "confident": True}
        row["accepted"] = True


def _flip_verdicts(rows: list[Row], _: Path) -> None:
    for row in rows:
        row["accepted"] = not row["accepted"]


def _agreeing(rows: list[Row], _: Path) -> None:
    """Have the critic agree with every label of its labelled sample, log-probabilities included."""
    for row in rows:
        for name, good in (("plain", "A"), ("swapped", "B")):
            wanted = good if row["label"] == "good" else ("B" if good == "A" else "A")
            scores = row[name]["scores"]
            for label in "ab":
                for form in (label, f"{label}_spaced"):
                    if scores[form] is not None:
                        scores[form] = -0.2 if label.upper() == wanted else -2.2
            facts = {"good_label": good, "good": row["label"] == "good", "margin": 2.0, "confident": True}
            row[name] |= facts
        row["accepted"] = row["label"] == "good"


ANSWERS = (
    Operator("repaired", "answers", "wrong answers of the treatment are repaired", ROWS, stage="after", lie=_repair),
    Operator("base-spoiled", "answers", "the base's answers are shuffled", ROWS, stage="before", lie=_other_order),
    Operator("dropped-rows", "answers", "every fifth row is left out", ("health.complete",), stage="after", lie=_drop),
    Operator("one-answer", "answers", "one answer stands for all", (*ROWS, "health.collapse"), stage="after",
             lie=_repeat),
    Operator("token-ids", "answers", "the last token id is another", ROWS, stage="after", lie=_ids),
    Operator("wrong-end", "answers", "rows say the opposite of how they ended", ROWS, stage="after",
             lie=_not_truncated),
    Operator("few-repaired", "answers", "four wrong answers of the treatment are repaired, token ids too", ROWS,
             stage="after", spoil=_few, spec=_HARDLY_TRAINED),
    Operator("ghostwritten", "answers", "half of the treatment's answers are of another author", ROWS, stage="after",
             spoil=_ghost),
    Operator("cut-base", "answers", "the base's answers are cut after six tokens, and said to end there", ROWS,
             stage="before", spoil=_cut),
    Operator("best-of-four", "answers", "the best of four sampled answers stands for the greedy one", ROWS,
             stage="after", spoil=_best_of_four, spec=_HARDLY_TRAINED),
    Operator("other-weights", "answers", "cached answers of other weights are the base's", ROWS, stage="before",
             swap=shaken_model),
    Operator("hinted", "answers", "the treatment was asked with a hint", ROWS, stage="after", swap=_add_hint),
)  # fmt: skip
SAMPLES = (
    Operator("repaired-samples", "samples", "drawn answers are shifted by one prompt", ROWS, stage="sample",
             lie=_other_order),
    Operator("sample-ids", "samples", "the last drawn token id is another", ROWS, stage="sample", lie=_ids),
    Operator("colder", "samples", "drawn at 0.45 instead of 0.7", ROWS, stage="sample", swap=_colder),
    Operator("hotter", "samples", "drawn at 1.2 instead of 0.7", ROWS, stage="sample", swap=_hotter),
    Operator("greedy-copies", "samples", "two thirds of the samples are greedy answers", ROWS, stage="sample",
             spoil=_greedy),
    Operator("copied-draws", "samples", "each second sample is a copy of the first", ROWS, stage="sample",
             spoil=_copy_answers),
    Operator("samples-of-others", "samples", "other weights drew the samples", ROWS, stage="sample",
             swap=shaken_model),
    Operator("kept-best-draws", "samples", "eight samples were drawn, right ones stand for the first two", ROWS,
             stage="sample", spoil=_kept_draws),
    Operator("edited-accepted", "samples", "kept completions are edited before training", ("health.accepted",),
             stage="sample", lie=_edited_accepted, output="accepted"),
    Operator("dropped-samples", "samples", "samples that were refused are left out", ("health.complete",),
             stage="sample", lie=_dropped_samples),
)  # fmt: skip
SCORED = (
    Operator("lower-surprise", "scores", "texts surprise the trained model a tenth less than they do", SCORES,
             session="scored", stage="texts_after", lie=_lower_surprise),
    Operator("moved-choices", "scores", "scores of choices change places", SCORES, session="scored",
             stage="facts_after", lie=_moved_choices),
    Operator("scores-of-base", "scores", "the untrained model was scored in the place of the trained one", SCORES,
             session="scored", stage="facts_after", swap=base_instead),
    Operator("fewer-texts", "scores", "the texts that got worse are left out", (*SCORES, "jobs.measured", "drift.kept"),
             session="scored", stage="texts_after", lie=_fewer_texts),
    Operator("invented-critic", "scores", "the critic's log-probabilities are invented", SCORES, session="judged",
             stage="critic", lie=_invented_critic),
    Operator("flipped-verdicts", "scores", "the critic's verdicts are the opposite", (*SCORES, "critics.follows"),
             session="judged", stage="critic", lie=_flip_verdicts),
    Operator("agreeing-critic", "scores", "the critic is made to agree with its labelled sample", SCORES,
             session="judged", stage="critic", lie=_agreeing, output="calibration"),
    Operator("critic-of-others", "scores", "other weights judged", SCORES, session="judged", stage="critic",
             swap=shaken_model),
)  # fmt: skip
OPERATORS = (*ANSWERS, *SAMPLES, *SCORED)
