"""Have the model write new instructions: completion mode for base models, the chat template for instruct models.

Shards run one after the other, each a series of rounds; what a round found is shown in later rounds. What is kept is
computed from the rows, here and by the measurer (``training/rules/generation/instruction_harvest.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specs.stages.base.sampling import Form
from specs.stages.generation.parameters import SelfInstructParameters
from specs.stages.generation.rows import SelfInstructRow
from training.engines.engine import CompletionEngine
from training.engines.engine_factory import make_engine
from training.engines.sampling_noise import stream_of
from training.engines.token_sampling import TokenSampling
from training.jobs.job import Job, StageResult
from training.jobs.witness.prompted_answers import PromptedAnswer, Source, answer, left_rows
from training.rules.generation.instruction_harvest import (
    Shard,
    count_instructions_to_write,
    harvest,
    prompt_examples_of,
)
from training.rules.prompt_encoding import encode_bare, form_of, prompt_ids
from training.rules.prompt_text import ExampleInstruction, calls_of_round, seed_of, stops_of_round
from training.rules.sampling_quality import Tally, of_calls
from training.rules.tasks import load_items

PROBED = 3
"""Calls that are made three times: twice with one seed, once with another."""


def instruct(job: Job[SelfInstructParameters]) -> StageResult:
    """Write ``rows`` (every call) and ``instructions`` (items: parsed, new, each once over all shards)."""
    parameters = job.parameters
    form = form_of(job.order.model_kind)
    seeds = prompt_examples_of(load_items(job.inputs["seeds"]))
    engine = make_engine(parameters.engine, job.inputs["model"], parameters.batch_size, scratch=job.folder)
    writer = Writer(engine, parameters, form)
    rows: list[SelfInstructRow] = []
    tally, why = Tally(parameters.quality), ""
    for number in range(parameters.shards):
        done, why = _shard(job, writer, number, seeds, tally)
        rows += done
        if why:
            break
    probes = writer.probe(seeds)
    items = harvest(rows, seeds, parameters).items
    job.write_rows("rows", [*rows, *probes])
    job.write_rows("instructions", list(items))
    facts = engine.describe_for_manifest(why) | {"model_kind": job.order.model_kind}
    tokens = sum(row.tokens for row in (*rows, *probes))
    effective = parameters.model_dump(mode="json") | writer.read_back() | {"engine": engine.name}
    return StageResult(engine.device, engine.dtype, tokens, effective, facts)


REPEATED = 2
"""The probe that has the seed of the first one."""
PARTS = {0: "", 1: "probe", REPEATED: "probe", 3: "other"}
"""By the number of a probe, or 0 for none, the name of its seed."""


class Writer:
    """Makes the calls of a round and returns rows of what came back."""

    def __init__(self, engine: CompletionEngine, parameters: SelfInstructParameters, form: Form) -> None:
        self._engine, self._tokenizer, self._parameters = engine, engine.tokenizer, parameters
        self._form: Form = form
        self._used: TokenSampling | None = None

    def round(
        self,
        shard: int,
        round: int,
        seeds: list[ExampleInstruction],
        grown: list[ExampleInstruction],
        probe: int = 0,
        part: str = "",
    ) -> list[SelfInstructRow]:
        """Return the rows of one round; a probe makes its first calls again."""
        calls = calls_of_round(self._parameters, self._form, shard, round, seeds, grown)
        calls = calls[:PROBED] if probe else calls
        seed = seed_of(self._parameters.seed, shard, round, part)
        encoded = [prompt_ids(self._tokenizer, call.text, self._form) for call in calls]
        self._used = TokenSampling.of(self._parameters, stops_of_round(self._parameters, self._form, calls[0].first))
        outputs = self._engine.complete(
            [value.ids for value in encoded],
            self._used,
            seed=seed,
            streams=[[stream_of(seed, number)] for number in range(len(calls))],
        )
        return [
            SelfInstructRow(
                shard=shard,
                round=round,
                call=number,
                probe=probe,
                seed=seed,
                form=self._form,
                topic=call.topic,
                examples=tuple(value.id for value in call.examples),
                first=call.first,
                prompt=prompt.text,
                prompt_tokens=len(prompt.ids),
                **output.as_row("raw", "tokens"),
            )
            for number, (call, prompt, (output,)) in enumerate(zip(calls, encoded, outputs, strict=True))
        ]

    def probe(self, seeds: list[ExampleInstruction]) -> list[SelfInstructRow]:
        """Make the first calls three times: the same seed must repeat itself, another seed must differ."""
        parts = ((probe, part) for probe, part in PARTS.items() if probe)
        return [row for probe, part in parts for row in self.round(0, 0, seeds, [], probe, part)]

    def read_back(self) -> dict[str, Any]:
        """Return the settings of the last decoding, by the name of the granted parameter."""
        return {} if self._used is None else self._used.read_back(self._parameters)


def _shard(
    job: Job[SelfInstructParameters], writer: Writer, number: int, seeds: list[ExampleInstruction], tally: Tally
) -> tuple[list[SelfInstructRow], str]:
    """Run or resume a shard to its end; return its rows and why it stopped early, or nothing."""
    parameters = job.parameters
    grouped_rows = job.shard(f"{number:04}", SelfInstructRow)
    shard = Shard(seeds, parameters.similarity)

    def take(rows: list[SelfInstructRow]) -> str:
        shard.take(rows)
        low = tally.look(of_calls(rows))
        return shard.why_broken_off(parameters) or low

    why = take(grouped_rows.rows())
    while not why and not shard.has_enough(parameters) and len(grouped_rows.groups) < parameters.max_rounds:
        rows = writer.round(number, len(grouped_rows.groups), seeds, shard.grown)
        grouped_rows.add(rows)
        why = take(rows)
        target = count_instructions_to_write(parameters) // parameters.shards
        note = {"shard": number, "repeats": shard.candidates - len(shard.grown)}
        job.progress(min(len(shard.grown), target), target, "instructions", **note)
    return grouped_rows.rows(), why


def build_witness_prompts(
    job: Job[SelfInstructParameters], tokenizer: Any, places: Sequence[int]
) -> list[PromptedAnswer]:
    """Return what the model was asked for these rows; that prompts are due is checked elsewhere (``text.prompts``)."""
    parameters, form = job.parameters, form_of(job.order.model_kind)
    return [
        answer(
            place,
            # A row holds the whole text, the template of an instruct model with it.
            encode_bare(tokenizer, row.prompt).ids,
            TokenSampling.of(parameters, stops_of_round(parameters, form, row.first)),
            ids=row.answer_ids,
            text=row.raw,
            finish=row.finish,
            again=row.probe == REPEATED,
            stream=Source(parameters).stream(
                seed_of(parameters.seed, row.shard, row.round, PARTS.get(row.probe, "")), row.call
            ),
        )
        for place, row in left_rows(job, SelfInstructRow, places)
    ]
