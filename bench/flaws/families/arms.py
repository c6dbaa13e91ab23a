"""What sets the arms apart besides the training: prompts rendered otherwise, hidden steps, a worn baseline."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from bench.flaws.families.design import SECOND
from bench.flaws.families.rows import read_lines
from bench.flaws.lying import PATCHES
from bench.flaws.operator import Change, Operator, Row, Work
from testing.fixtures.tiny_training import write_lines
from training.jobs.evaluation import evaluate, multiple_choice, perplexity
from training.jobs.finetuning import dpo, sft
from training.jobs.finetuning.weight_sketch import sketch
from training.jobs.job import Job

PROMPTS, MOVED, BASE = ("parity.prompts",), ("training.path", "training.moved"), ("parity.models", "design.baseline")
_NIGHT = "It is late. Think of the form that is asked for before you answer. "


def _render(module: Any, name: str, change: Callable[..., Any]) -> Work:
    """Return what has a job and its witness read other prompts, as a template does that reads a clock."""

    def swap(_: Job) -> None:
        usual = getattr(module, name)
        PATCHES.enter_context(mock.patch.object(module, name, partial(change, usual)))

    return swap


def _item_ids(prefix: str, affects: Callable[[Any], bool]) -> Work:
    def change(usual: Any, tokenizer: Any, item: Any, *rest: Any) -> Any:
        ids = usual(tokenizer, item, *rest)
        return [*tokenizer(prefix, add_special_tokens=False)["input_ids"], *ids] if affects(item) else ids

    return _render(evaluate, "item_ids", change)


def _texts_later(usual: Any, tokenizer: Any, parameters: Any, item: Any) -> Any:
    return usual(tokenizer, parameters.model_copy(update={"question": f"Think first. {parameters.question}"}), item)


def _longer(rows: list[Row], _: Path) -> None:
    for row in rows:
        row["prompt_tokens"] = 57


def _other_item(rows: list[Row], _: Path) -> None:
    """State the prompt of another item for one answer."""
    rows[3]["prompt_digest"] = rows[4]["prompt_digest"]


def _repeat_steps(module: Any, times: int, after: int) -> Work:
    """Return what has each step after the first few applied several times, with one row; its witness is honest."""

    def change(usual: Any, job: Job, *rest: Any, **named: Any) -> Any:
        from transformers import TrainerCallback

        class Repeat(TrainerCallback):
            def on_optimizer_step(
                self, args: Any, state: Any, control: Any, optimizer: Any = None, **rest: Any
            ) -> None:
                for _ in range(times * (state.global_step >= after)):
                    optimizer.step()

        built = usual(job, *rest, **named)
        if not job.order.challenge:
            built.trainer.add_callback(Repeat())
        return built

    return _render(module, "build", change)


def _travel(share: float, even: bool = False) -> Work:
    """Return what goes on in the direction of the training, with rows whose sketches fit the weights that are saved."""

    def spoil(job: Job) -> None:
        from safetensors.torch import load_file, save_file

        path, rows = job.out / "checkpoint" / "model.safetensors", read_lines(job.out / "rows.jsonl")
        base, made = load_file(job.inputs["model"] / "model.safetensors"), load_file(path)
        far = {name: base[name] + share * (made[name] - base[name]) for name in made}
        save_file(far, path, metadata={"format": "pt"})
        first, last = rows[4]["sketch"], sketch({name: far[name] for name in sorted(far)})
        for number, row in enumerate(rows[5:] if even else rows[-1:], 1):
            way = number / (len(rows) - 5) if even else 1.0
            row["sketch"] = [float(f"{a + way * (b - a):.9g}") for a, b in zip(first, last, strict=True)]
        write_lines(job.out / "rows.jsonl", rows)

    return spoil


def _swap_rows(job: Job) -> None:
    """Exchange units of one layer that no sketch holds: the norm of all weights stays."""
    from safetensors.torch import load_file, save_file

    path = job.out / "checkpoint" / "model.safetensors"
    made = load_file(path)
    before = sketch(made)
    for name in sorted(made):
        if made[name].dim() == 2 and "embed" not in name:
            other = {**made, name: made[name].flip(0).contiguous()}
            if sketch(other)[1:] == before[1:]:
                save_file(other, path, metadata={"format": "pt"})
                return


def _drop_sketches(rows: list[Row], _: Path) -> None:
    for row in rows[8:-1]:
        row["sketch"] = []


def _stages(*others: tuple[str, str, str], baseline: str, treatment: str = "model") -> tuple[Change, ...]:
    """Return changes of a spec: stages that train (name, model, rate), the baseline's model and the treatment's."""
    texts = "".join(
        SECOND.replace("OTHER", name).replace("model: model", f"model: {model}").replace("1e-3", rate)
        for name, model, rate in others
    )
    first = "  - name: before\n    kind: evaluate\n    inputs: {model: model, items: heldout}\n"
    first += "    parameters: {max_new_tokens: 48, batch_size: 16, seed: 3}\n"
    return (
        (first, ""),
        ("  - name: train\n    kind: sft\n    inputs: {model: model",
         f"{texts}{first.replace('model: model', f'model: {baseline}')}  - name: train\n    kind: sft\n"
         f"    inputs: {{model: {treatment}"),
    )  # fmt: skip


_LOOK = """  - name: look
    kind: evaluate
    inputs: {model: model, items: heldout}
    parameters: {max_new_tokens: 48, batch_size: 16, seed: 3}
"""
OPERATORS = (
    Operator("night-treatment", "prompts", "all prompts of the treatment but the first are 35 tokens longer", PROMPTS,
             stage="after", swap=_item_ids(_NIGHT, lambda item: item.id != "heldout-elephants-lowercase")),
    Operator("night-base", "prompts", "the base's prompts of one kind ask for capitals", PROMPTS, stage="before",
             swap=_item_ids("WRITE ALL OF IT IN CAPITALS. ", lambda item: item.kind == "lowercase")),
    Operator("one-prompt", "prompts", "one prompt of the treatment has a word more", PROMPTS, stage="after",
             swap=_item_ids("Well. ", lambda item: item.id == "heldout-the-sun-quoted")),
    Operator("long-prompts-stated", "prompts", "the treatment's rows state prompts of 57 tokens",
             (*PROMPTS, "witness.answers"), stage="after", lie=_longer),
    Operator("prompt-of-another", "prompts", "a row states the prompt of another item", (*PROMPTS, "witness.answers"),
             stage="after", lie=_other_item),
    Operator("facts-hinted", "prompts", "the questions after training begin with a hint", ("drift.kept",),
             session="scored", stage="facts_after", swap=_render(multiple_choice, "_texts", _texts_later)),
    Operator("texts-other-prefix", "prompts", "another token stands before the texts after training", ("drift.kept",),
             session="scored", stage="texts_after", swap=_render(perplexity, "prefix_of", lambda *_: 5)),
    Operator("repeated-steps", "movement", "each step after the tenth is done ten times", MOVED, stage="train",
             swap=_repeat_steps(sft, 9, 10)),
    Operator("hidden-late-steps", "movement", "twelve steps are hidden at each late one", MOVED, stage="train",
             swap=_repeat_steps(sft, 12, 30)),
    Operator("hidden-adapter-steps", "movement", "each step of adapters after the tenth is done six times",
             (*MOVED, "witness.training"), session="lora", stage="train", swap=_repeat_steps(sft, 5, 10)),
    Operator("hidden-dpo-steps", "movement", "each step on pairs after the fifth is done ten times", MOVED,
             session="dpo", stage="train", swap=_repeat_steps(dpo, 9, 5)),
    Operator("far-end", "movement", "the last row's weights are twice as far as the steps before it", MOVED,
             stage="train", spoil=_travel(2.0)),
    Operator("even-way", "movement", "weights three times as far, with sketches spread evenly over the rows", MOVED,
             stage="train", spoil=_travel(3.0, even=True)),
    Operator("turned-layer", "movement", "the units of one layer change places after the last step",
             (*MOVED, "witness.weights"), stage="train", spoil=_swap_rows),
    Operator("rows-without-weights", "movement", "most rows state no weights", MOVED, stage="train",
             lie=_drop_sketches),
    Operator("worn-branch", "baselines", "the baseline is a checkpoint that another stage has overtrained", BASE,
             spec=_stages(("worn", "model", "2e-2"), baseline="worn.checkpoint")),
    Operator("weak-branch", "baselines", "the treatment starts from a better checkpoint than the baseline", BASE,
             spec=_stages(("worn", "model", "2e-2"), ("good", "model", "1e-3"), baseline="worn.checkpoint",
                          treatment="good.checkpoint")),
    Operator("worn-start", "baselines", "both arms come from a checkpoint that a stage has made worse; the base has a "
             "look too", (*BASE, "health.labels", "health.empty"),
             spec=(*_stages(("worn", "model", "4e-2"), baseline="worn.checkpoint", treatment="worn.checkpoint"),
                   ("  - name: worn\n", _LOOK + "  - name: worn\n"))),
    Operator("worn-in-two", "baselines", "two stages in turn wear the baseline's checkpoint", BASE,
             spec=_stages(("worn", "model", "1e-2"), ("more", "worn.checkpoint", "1e-2"), baseline="more.checkpoint")),
)  # fmt: skip
