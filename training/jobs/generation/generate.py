"""Sample completions from the model itself and keep what the verifier accepts.

While sampling, one worked example stands before the prompt. The kept examples carry the bare prompt, so training
on them moves the form from the context into the weights. Samples are kept batch by batch: a stage that was ended goes
on after the last whole batch and gives the same rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specs.stages.artifacts import Example, Item
from specs.stages.generation.parameters import GenerateParameters
from specs.stages.generation.rows import GenerationRow
from training.engines.batched import Output
from training.engines.engine import Batched, Engine, make_engine, stated
from training.engines.token_sampling import Sampling
from training.jobs.job import Done, Job, run_stage
from training.jobs.row_files import GroupedRows, write_durably
from training.rules.item_prompts import sample_ids
from training.rules.prompt_encoding import form_of
from training.rules.prompt_text import seed_of
from training.rules.sampling_quality import Tally, group_size, of_samples
from training.rules.tasks import choose, load_items, verifier, worked_example

if TYPE_CHECKING:
    import torch


class Draws:
    """The generator of a stage's sampling: a stage that was ended continues the stream after its last whole group.

    The state after each group is on the disk before the group is, so that every group has one.

    Args:
        folder: where the states are kept.
        seed: of the stream.
        device: the generator's; the stream of a GPU is another than that of a CPU.
        groups: how many groups are there already.

    Raises:
        OSError: the state after the last of them cannot be read.
        RuntimeError: it belongs to another kind of device.
    """

    def __init__(self, folder: Path, seed: int, device: str, groups: int) -> None:
        import torch

        self._folder = folder
        self.generator: torch.Generator = torch.Generator(device=device).manual_seed(seed)
        if groups:
            state = bytearray(self._of(groups).read_bytes())
            self.generator.set_state(torch.frombuffer(state, dtype=torch.uint8))

    def keep(self, groups: int) -> None:
        """Keep the state after so many groups, durably; the one before it is still needed, earlier ones are not."""
        self._folder.mkdir(parents=True, exist_ok=True)
        write_durably(self._of(groups), self.generator.get_state().numpy().tobytes())
        self._of(groups - 2).unlink(missing_ok=True)

    def _of(self, groups: int) -> Path:
        return self._folder / f"after-{groups}"


def generate(job: Job) -> Done:
    """Write ``rows`` (every sample) and ``accepted`` (verified, without repeats).

    Raises:
        EncodingFault: a prompt is not encoded as the text it is, or a model declared instruct has no chat template.
    """
    parameters = job.parameters
    assert isinstance(parameters, GenerateParameters)
    form = form_of(job.order.declared())
    items = choose(load_items(job.inputs["prompts"]), parameters.max_prompts)
    size, folder = parameters.batch_size, job.inputs["model"]
    engine = make_engine(parameters.engine, folder, size, scratch=job.folder, share=False)
    prompts = [
        sample_ids(
            engine.tokenizer,
            item.prompt,
            worked_example(job.order.task, item) if parameters.worked_example else None,
            parameters,
            form,
        )
        for item in items
    ]
    rows, why = _sampled(job, parameters, engine, items, prompts)
    job.write_rows("rows", rows)
    job.write_rows("accepted", accept(job.order.task, items, rows))
    effective = parameters.model_dump(mode="json") | {"engine": engine.name, "prompts": len(items), "form": form}
    tokens = sum(row.completion_tokens for row in rows)
    facts = stated(engine) | ({"broken_off": why} if why else {})
    return Done(engine.device, engine.dtype, tokens, effective, facts)


def _sampled(
    job: Job,
    parameters: GenerateParameters,
    engine: Engine,
    items: list[Item],
    prompts: list[list[int]],
) -> tuple[list[GenerationRow], str]:
    """Return every sample of every item, in their order, and why it was broken off, if it was."""
    sampling = Sampling(parameters.max_new_tokens, parameters.temperature, parameters.top_p, stops=parameters.stops)
    kept = GroupedRows(job.folder / "shards" / "samples.jsonl", GenerationRow)
    draws = None
    if isinstance(engine, Batched):
        draws = Draws(job.folder / "shards" / "draws", parameters.seed, engine.device, len(kept.groups))
    # Sorted by length, as decoding would sort them: prompts of one batch are padded little.
    order = sorted(range(len(items)), key=lambda index: (len(prompts[index]), index))
    size = max(1, parameters.batch_size // parameters.samples_per_prompt) * engine.at_once
    size = group_size(parameters.quality, size, parameters.samples_per_prompt)
    batches = [order[at : at + size] for at in range(0, len(order), size)]
    tally = Tally(parameters.quality)
    tally.add(of_samples(kept.rows(), parameters.stops))
    for batch in batches[len(kept.groups) :]:
        if tally.why():
            break
        outputs = _outputs(engine, [prompts[index] for index in batch], sampling, parameters, draws, len(kept.groups))
        kept.add(
            [
                _row(items[index], sample, output)
                for index, samples in zip(batch, outputs, strict=True)
                for sample, output in enumerate(samples)
            ]
        )
        tally.add(of_samples(kept.groups[-1], parameters.stops))
        job.progress(min(len(items), len(kept.groups) * size), len(items), "prompts")
    each = parameters.samples_per_prompt
    rows = kept.rows()
    by_place = {index: rows[each * at : each * (at + 1)] for at, index in enumerate(order)}
    return [row for index in range(len(items)) for row in by_place[index]], tally.why()


def _outputs(
    engine: Engine,
    prompts: list[list[int]],
    sampling: Sampling,
    parameters: GenerateParameters,
    draws: Draws | None,
    number: int,
) -> list[list[Output]]:
    """Return the samples of a batch."""
    samples = parameters.samples_per_prompt
    if draws is None or not isinstance(engine, Batched):
        return engine.complete(prompts, sampling, samples=samples, seed=seed_of(parameters.seed, "generate", number))
    # One stream of random numbers goes through all batches, as it did before there were other engines.
    outputs = engine.complete(prompts, sampling, samples=samples, generator=draws.generator)
    draws.keep(number + 1)
    return outputs


def _row(item: Item, sample: int, output: Output) -> GenerationRow:
    return GenerationRow(
        item=item.id,
        group=item.group,
        kind=item.kind,
        sample=sample,
        prompt=item.prompt,
        completion=output.text,
        completion_tokens=len(output.ids),
        truncated=output.truncated,
        finish=output.finish,
        stop=output.stop,
    )


def accept(task: str, items: list[Item], rows: list[GenerationRow]) -> list[Example]:
    """Return what may be trained on: verified, whole, each (prompt, completion) once."""
    by_id = {item.id: item for item in items}
    judge = verifier(task)
    kept: dict[tuple[str, str], Example] = {}
    for row in rows:
        if row.truncated or not judge(by_id[row.item], row.completion).passed:
            continue
        text = row.completion.strip()
        kept.setdefault(
            (row.prompt, text),
            Example(
                item=row.item, group=row.group, kind=row.kind, sample=row.sample, prompt=row.prompt, completion=text
            ),
        )
    return list(kept.values())


if __name__ == "__main__":
    run_stage("generate", generate)
