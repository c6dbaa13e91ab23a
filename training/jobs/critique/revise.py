"""Criticise responses by principles of the constitution and rewrite them, round after round.

A group of chains goes through all of its rounds together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from specs.jobs.job_records import LEFT
from specs.loading.loading import load_constitution
from specs.session.constitution import Principle
from specs.stages.base.artifacts import Example
from specs.stages.base.sampling import Finish, Form, Ids
from specs.stages.critique.parameters import ReviseParameters
from specs.stages.critique.rows import RevisionRound, RevisionRow
from specs.system.digests import digest_value
from training.engines.batched import Completion
from training.engines.engine import CompletionEngine
from training.engines.engine_factory import make_engine
from training.engines.sampling_noise import stream_of
from training.engines.token_sampling import TokenSampling
from training.jobs.critique.best_of_n_verified import write_pairs
from training.jobs.critique.pair_judge import ask_judge, judge_scored, labelled_sample
from training.jobs.job import Job, StageResult, batches_of
from training.jobs.row_files import read_rows
from training.jobs.witness.prompted_answers import PromptedAnswer, Source, answer, left_rows
from training.jobs.witness.scoring import Scoring
from training.rules.critique.preference_pairs import all_revisions, collect_revised_examples, revisions_to_compare
from training.rules.critique.revision_chains import (
    STOPS,
    PromptWriter,
    Rounds,
    chain_name,
    chain_prompts,
    faults_of,
    outcome,
    plan,
)
from training.rules.prompt_encoding import prompt_ids
from training.rules.prompt_text import seed_of
from training.rules.sampling_quality import Tally, group_size, of_chains
from training.rules.tasks import spread

GROUP = 128
"""Chains that go through their rounds together."""


def revise(job: Job[ReviseParameters]) -> StageResult:
    """Write ``rows`` (every chain), ``preferences`` (revision over original) and ``examples`` (final revisions)."""
    parameters, judge = job.parameters, job.parameters.judge
    sample = labelled_sample(job) if judge else []
    examples = spread(read_rows(job.inputs["examples"], Example), parameters.max_examples)
    constitution, digest = load_constitution(job.inputs["constitution"])
    names = [chain_name(example.item, example.sample) for example in examples]
    plans = plan(constitution, names, parameters)
    engine = make_engine(parameters.engine, job.inputs["model"], parameters.batch_size, scratch=job.folder)
    reviser = Reviser(engine, parameters, PromptWriter.of(parameters, job.order.model_kind), digest, job.advance)
    shard = job.shard("chains", RevisionRow)
    groups = batches_of(list(zip(examples, plans, strict=True)), group_size(parameters.quality, GROUP))
    tally = Tally(parameters.quality)
    why = job.fill(shard, groups, reviser.group, "chains", lambda rows: tally.look(of_chains(rows)))
    rows = shard.rows()
    job.write_rows("rows", rows)
    engine.close()
    facts, comparisons = engine.describe_for_manifest(why), None
    if judge:
        statement = ask_judge(job, judge.rubric, judge.as_critic(), sample, revisions_to_compare(rows, parameters))
        comparisons, facts = statement.comparisons, facts | statement.facts
    pairs = all_revisions(rows, parameters, comparisons)
    write_pairs(job, parameters, pairs)
    job.write_rows("examples", collect_revised_examples(rows))
    tokens = sum(
        revision_round.critique_tokens + revision_round.revision_tokens for row in rows for revision_round in row.rounds
    )
    facts |= {
        "chains": len(rows),
        "dropped": pairs.reasons(),
        "constitution": digest,
        "model_kind": job.order.model_kind,
        "prompts": digest_value(chain_prompts().model_dump()),
    }
    effective = parameters.model_dump(mode="json") | reviser.read_back() | {"engine": engine.name}
    return StageResult(engine.device, engine.dtype, tokens, effective, facts)


def _samplings(revise_parameters: ReviseParameters, form: Form) -> tuple[TokenSampling, TokenSampling]:
    """Return how critiques and how revisions are drawn."""
    stops = STOPS[form]
    return (
        TokenSampling(
            revise_parameters.critique_tokens,
            revise_parameters.critique_temperature,
            revise_parameters.top_p,
            stops=stops,
        ),
        TokenSampling(
            revise_parameters.revision_tokens,
            revise_parameters.revision_temperature,
            revise_parameters.top_p,
            stops=stops,
        ),
    )


def build_witness_prompts(job: Job[ReviseParameters], tokenizer: Any, places: Sequence[int]) -> list[PromptedAnswer]:
    """Return what the model was asked in each round; that prompts are due is checked elsewhere (``revise.prompts``)."""
    form = PromptWriter.of(job.parameters, job.order.model_kind).form
    critique, revision = _samplings(job.parameters, form)
    results, source = list[PromptedAnswer](), Source(job.parameters)
    for place, row in left_rows(job, RevisionRow, places):
        for number, revision_round in enumerate(row.rounds, 1):
            both: tuple[tuple[str, TokenSampling, str, Ids | None, str, Finish], ...] = (
                (
                    "critique",
                    critique,
                    revision_round.critique_prompt,
                    revision_round.critique_ids,
                    revision_round.critique,
                    revision_round.critique_finish,
                ),
                (
                    "revision",
                    revision,
                    revision_round.revision_prompt,
                    revision_round.revision_ids,
                    revision_round.revision,
                    revision_round.revision_finish,
                ),
            )
            for name, sampling, asked_for, ids, text, finish in both:
                prompt, part = prompt_ids(tokenizer, asked_for, form).ids, f"{name} {number}"
                stream = source.stream(job.parameters.seed, part, chain_name(row.item, row.sample))
                results.append(
                    answer(place, prompt, sampling, ids=ids, text=text, finish=finish, part=part, stream=stream)
                )
    return results


def build_scorings(job: Job[ReviseParameters], output: str, places: Sequence[int]) -> list[Scoring]:
    """Return what the judge scored for these rows: revisions next to their originals, or the labelled pairs."""
    judge = job.parameters.judge
    assert judge is not None
    pairs = revisions_to_compare(read_rows(job.inputs[f"{LEFT}rows"], RevisionRow), job.parameters)
    return judge_scored(job, judge.rubric, judge.as_critic(), pairs, output, places)


class Reviser:
    """Takes groups of chains through their rounds."""

    def __init__(
        self,
        engine: CompletionEngine,
        parameters: ReviseParameters,
        writer: PromptWriter,
        constitution: str,
        on_chains: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._engine, self._tokenizer, self._parameters = engine, engine.tokenizer, parameters
        self._writer = writer
        self._constitution = constitution
        self._on_chains = on_chains
        """Gets how many chains of a group are done; a chain of which half of the texts are written counts as half."""
        self._critique, self._revision = _samplings(parameters, writer.form)

    def read_back(self) -> dict[str, Any]:
        """Return the settings of the decoding, by the name of the granted parameter."""
        return {
            "critique_temperature": self._critique.temperature,
            "revision_temperature": self._revision.temperature,
            "top_p": self._revision.top_p,
            "critique_tokens": self._critique.max_new_tokens,
            "revision_tokens": self._revision.max_new_tokens,
        }

    def group(self, number: int, chains: Sequence[tuple[Example, Rounds]]) -> list[RevisionRow]:
        """Return the rows of a group of chains."""
        examples = [example for example, _ in chains]
        texts = [example.completion for example in examples]
        rounds: list[list[RevisionRound]] = [[] for _ in examples]
        for place in range(self._parameters.revisions):
            principles = [plan.principles[place] for _, plan in chains]
            seed = seed_of(self._parameters.seed, "revise", number, place)
            for chain, done in enumerate(self._round(examples, texts, principles, seed, place + 1)):
                rounds[chain].append(done)
                texts[chain] = texts[chain] if done.faults else done.revision
        return [
            self._row(example, tuple(example_rounds)) for example, example_rounds in zip(examples, rounds, strict=True)
        ]

    def _round(
        self, examples: Sequence[Example], texts: Sequence[str], principles: Sequence[Principle], seed: int, number: int
    ) -> list[RevisionRound]:
        names = [chain_name(example.item, example.sample) for example in examples]
        requests = list(zip(examples, texts, principles, strict=True))
        criticised = [self._writer.critique_prompt(example.prompt, text, rule) for example, text, rule in requests]
        critiques = self._complete(criticised, self._critique, seed_of(seed, "critique"), ("critique", number), names)
        revising = [
            self._writer.revision_prompt(example.prompt, text, rule, critique.text.strip())
            for (example, text, rule), critique in zip(requests, critiques, strict=True)
        ]
        revisions = self._complete(revising, self._revision, seed_of(seed, "revision"), ("revision", number), names)
        return [
            RevisionRound(
                principle=rule.id,
                category=rule.category,
                critique_prompt=criticised[place],
                critique=critique.text.strip(),
                critique_tokens=len(critique.ids),
                critique_finish=critique.finish,
                critique_ids=critique.ids,
                revision_prompt=revising[place],
                revision=(new := revision.text.strip()),
                revision_tokens=len(revision.ids),
                revision_finish=revision.finish,
                revision_ids=revision.ids,
                faults=faults_of(new, text, example.prompt, revision.finish, self._parameters, revising[place]),
            )
            for place, ((example, text, rule), critique, revision) in enumerate(
                zip(requests, critiques, revisions, strict=True)
            )
        ]

    def _complete(
        self, prompts: Sequence[str], sampling: TokenSampling, seed: int, part: tuple[str, int], names: Sequence[str]
    ) -> list[Completion]:
        name, round_number = part
        ids = [prompt_ids(self._tokenizer, prompt, self._writer.form).ids for prompt in prompts]
        streams = [[stream_of(self._parameters.seed, f"{name} {round_number}", chain)] for chain in names]
        part_number = 2 * (round_number - 1) + (name == "revision")

        def report(done: int) -> None:
            self._on_chains((part_number * len(ids) + done) / (2 * self._parameters.revisions))

        outputs = self._engine.complete(ids, sampling, seed=seed, streams=streams, on_batch=report)
        return [output for (output,) in outputs]

    def _row(self, example: Example, rounds: tuple[RevisionRound, ...]) -> RevisionRow:
        final, usable = outcome(
            example.completion, [(revision_round.revision, revision_round.faults) for revision_round in rounds]
        )
        return RevisionRow(
            item=example.item,
            group=example.group,
            kind=example.kind,
            sample=example.sample,
            constitution=self._constitution,
            instruction=example.prompt,
            original=example.completion,
            rounds=rounds,
            final=final,
            usable=usable,
        )
