"""Criticise responses by principles of the constitution and write them anew, round after round.

A group of chains goes through all of its rounds together and is written down as a whole; a stage that was ended goes on
after the last whole group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specs.digests import digest_value
from specs.session.constitution import Principle
from specs.session.loading import load_constitution
from specs.stages.answer_end import Form
from specs.stages.artifacts import Example
from specs.stages.critique.parameters import ReviseParameters
from specs.stages.critique.rows import RevisionRound, RevisionRow
from training.engines.batched import Output
from training.engines.engine import Engine, make_engine, stated
from training.engines.token_sampling import Sampling
from training.jobs.critique.pair_files import write_pairs
from training.jobs.critique.pair_judge import ask_judge, labelled_sample
from training.jobs.job import Done, Job, run_stage
from training.jobs.row_files import GroupedRows, read_rows
from training.rules.critique.preference_pairs import all_revisions, revised, revisions_to_compare
from training.rules.critique.revision_chains import (
    STOPS,
    Rounds,
    chain_name,
    chain_prompts,
    critique_prompt,
    faults_of,
    outcome,
    plan,
    revision_prompt,
)
from training.rules.critique.subjects import spread
from training.rules.prompt_encoding import form_of, prompt_ids
from training.rules.prompt_text import seed_of
from training.rules.sampling_quality import Tally, group_size, of_chains

GROUP = 128
"""Chains that go through their rounds together."""


def revise(job: Job) -> Done:
    """Write ``rows`` (every chain), ``preferences`` (revision over original) and ``examples`` (final revisions)."""
    parameters = job.parameters
    assert isinstance(parameters, ReviseParameters)
    sample = labelled_sample(job) if parameters.judge else []
    given = read_rows(job.inputs["examples"], Example)
    examples = spread(given, parameters.max_examples)
    constitution, digest = load_constitution(job.inputs["constitution"])
    names = [chain_name(one.item, one.sample) for one in examples]
    plans = plan(constitution, names, parameters.revisions, parameters.seed)
    engine = make_engine(parameters.engine, job.inputs["model"], parameters.batch_size, scratch=job.folder)
    reviser = Reviser(engine, parameters, form_of(job.order.model_kind), digest)
    kept = GroupedRows(job.folder / "shards" / "chains.jsonl", RevisionRow)
    size = group_size(parameters.quality, GROUP)
    groups = range(0, len(examples), size)
    tally = Tally(parameters.quality)
    tally.add(of_chains(kept.rows()))
    for number, at in enumerate(groups):
        if number >= len(kept.groups):
            if tally.why():
                break
            kept.add(reviser.group(number, examples[at : at + size], plans[at : at + size]))
            tally.add(of_chains(kept.groups[-1]))
        job.progress(number + 1, len(groups), "groups")
    rows = kept.rows()
    job.write_rows("rows", rows)
    engine_facts = stated(engine)
    comparisons = None
    if parameters.judge:
        engine.close()
        judge = parameters.judge
        said = ask_judge(job, judge.rubric, judge.as_critic(), sample, revisions_to_compare(rows, parameters))
        comparisons, engine_facts = said.comparisons, engine_facts | said.facts
    pairs = all_revisions(rows, parameters, comparisons)
    write_pairs(job, parameters, pairs)
    job.write_rows("examples", revised(rows))
    tokens = sum(one.critique_tokens + one.revision_tokens for row in rows for one in row.rounds)
    facts = engine_facts | {
        "chains": len(rows),
        "dropped": pairs.reasons(),
        "constitution": digest,
        "model_kind": job.order.model_kind,
        "prompts": digest_value(chain_prompts().model_dump()),
    }
    facts |= {"broken_off": tally.why()} if tally.why() else {}
    effective = parameters.model_dump(mode="json") | reviser.read_back() | {"engine": engine.name}
    return Done(engine.device, engine.dtype, tokens, effective, facts)


class Reviser:
    """Takes groups of chains through their rounds."""

    def __init__(self, engine: Engine, parameters: ReviseParameters, form: Form, constitution: str) -> None:
        self._engine, self._tokenizer, self._parameters = engine, engine.tokenizer, parameters
        self._form: Form = form
        self._constitution = constitution
        stops = STOPS[form]
        self._critique = Sampling(
            parameters.critique_tokens, parameters.critique_temperature, parameters.top_p, stops=stops
        )
        self._revision = Sampling(
            parameters.revision_tokens, parameters.revision_temperature, parameters.top_p, stops=stops
        )

    def read_back(self) -> dict[str, Any]:
        """Return the settings of the decoding, by the name of the granted parameter."""
        return {
            "critique_temperature": self._critique.temperature,
            "revision_temperature": self._revision.temperature,
            "top_p": self._revision.top_p,
            "critique_tokens": self._critique.max_new_tokens,
            "revision_tokens": self._revision.max_new_tokens,
        }

    def group(self, number: int, examples: Sequence[Example], plans: Sequence[Rounds]) -> list[RevisionRow]:
        """Return the rows of a group of chains."""
        texts = [one.completion for one in examples]
        rounds: list[list[RevisionRound]] = [[] for _ in examples]
        for place in range(self._parameters.revisions):
            principles = [one.principles[place] for one in plans]
            seed = seed_of(self._parameters.seed, "revise", number, place)
            for chain, done in enumerate(self._round(examples, texts, principles, seed)):
                rounds[chain].append(done)
                texts[chain] = texts[chain] if done.faults else done.revision
        return [self._row(example, tuple(some)) for example, some in zip(examples, rounds, strict=True)]

    def _round(
        self, examples: Sequence[Example], texts: Sequence[str], principles: Sequence[Principle], seed: int
    ) -> list[RevisionRound]:
        asked = list(zip(examples, texts, principles, strict=True))
        criticised = [critique_prompt(one.prompt, text, rule, self._form) for one, text, rule in asked]
        critiques = self._complete(criticised, self._critique, seed_of(seed, "critique"))
        revising = [
            revision_prompt(one.prompt, text, rule, critique.text.strip(), self._form)
            for (one, text, rule), critique in zip(asked, critiques, strict=True)
        ]
        revisions = self._complete(revising, self._revision, seed_of(seed, "revision"))
        return [
            RevisionRound(
                principle=rule.id,
                category=rule.category,
                critique_prompt=criticised[place],
                critique=critiques[place].text.strip(),
                critique_tokens=len(critiques[place].ids),
                critique_finish=critiques[place].finish,
                revision_prompt=revising[place],
                revision=revisions[place].text.strip(),
                revision_tokens=len(revisions[place].ids),
                revision_finish=revisions[place].finish,
                faults=faults_of(
                    revisions[place].text.strip(),
                    text,
                    one.prompt,
                    revisions[place].finish,
                    self._parameters.min_words,
                ),
            )
            for place, (one, text, rule) in enumerate(asked)
        ]

    def _complete(self, prompts: Sequence[str], sampling: Sampling, seed: int) -> list[Output]:
        ids = [prompt_ids(self._tokenizer, prompt, self._form).ids for prompt in prompts]
        return [output for (output,) in self._engine.complete(ids, sampling, seed=seed)]

    def _row(self, example: Example, rounds: tuple[RevisionRound, ...]) -> RevisionRow:
        final, usable = outcome(example.completion, [(one.revision, one.faults) for one in rounds])
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


if __name__ == "__main__":
    run_stage("revise", revise)
