"""Chains of critique and revision: the order of principles, the prompts, and the faults of a revision.

The measurer computes plan and faults again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from specs.session.constitution import Constitution, Principle
from specs.stages.base.sampling import Finish, Form
from specs.stages.critique.parameters import PrincipleParts, ReviseParameters
from specs.stages.critique.rows import RevisionFault, RevisionRow
from specs.system.digests import Contract
from training.rules.cleaning import refuses
from training.rules.prompt_encoding import form_of
from training.rules.rubric_prompts import PROMPTS
from training.rules.seeded_order import file_order

STOPS: dict[Form, tuple[str, ...]] = {
    "completion": ("\n\n", "\nInstruction:", "\nResponse:", "\nPrinciple:", "\nCritique:", "\nRevision:"),
    "chat": (),
}
"""A base model continues with the next part of the form; that ends its answer."""

_PLACE = re.compile(r"\{([a-z]+)\}")


class ChainPrompts(Contract):
    """The texts of ``training/rules/prompts/revision.yaml``."""

    worked: str
    """Finished chains that precede the question to a base model."""
    question: str
    critique_question: str
    """For chat models; a base model is led by the form of the worked chains."""
    revision_question: str
    neutral: str
    """What takes the place of a principle that is not shown."""


@cache
def chain_prompts() -> ChainPrompts:
    """Return the prompts that Peergate ships; raises OSError or ValueError if their file is broken."""
    from ruamel.yaml import YAML

    with (PROMPTS / "revision.yaml").open(encoding="utf-8") as handle:
        return ChainPrompts.model_validate(YAML(typ="safe").load(handle))


class Rounds(NamedTuple):
    """The principles of one chain, in order."""

    principles: tuple[Principle, ...]


def select_principles(constitution: Constitution, parameters: ReviseParameters) -> list[Principle]:
    """Return the principles that a stage uses; raises ValueError for an unknown principle."""
    known = {principle.id: principle for principle in constitution.principles}
    if unknown := [id for id in parameters.principles or () if id not in known]:
        raise ValueError(f"unknown principle '{unknown[0]}': the constitution holds {', '.join(known)}")
    return [known[id] for id in parameters.principles or known]


def plan(constitution: Constitution, chains: Sequence[str], parameters: ReviseParameters) -> list[Rounds]:
    """Return the principles of each chain, in the order of ``chains``.

    Categories take turns over all rounds of all chains, so that their counts differ by at most one; so do the
    principles of a category. The seed decides the order of chains, categories and principles. Principles that the
    parameters name take turns themselves, in the order of their names.

    Raises:
        ValueError: two chains have the same name, or as :func:`select_principles`.
    """
    if len(set(chains)) != len(chains):
        raise ValueError("two chains have the same name")
    rounds, seed = parameters.revisions, parameters.seed
    turns = _take_turns(select_principles(constitution, parameters), parameters)
    matching_rounds: dict[str, Rounds] = {}
    use = 0
    for name in _shuffle_by_seed(list(chains), seed):
        chosen: list[Principle] = []
        for _ in range(rounds):
            principles = turns[use % len(turns)]
            chosen.append(principles[use // len(turns) % len(principles)])
            use += 1
        matching_rounds[name] = Rounds(tuple(chosen))
    return [matching_rounds[name] for name in chains]


def _take_turns(principles: Sequence[Principle], parameters: ReviseParameters) -> list[list[Principle]]:
    """Return what takes turns, in order: the named principles, or the principles of each category."""
    if parameters.principles:
        return [[principle] for principle in principles]
    by_category: dict[str, list[Principle]] = {}
    for principle in principles:
        by_category.setdefault(principle.category, []).append(principle)
    seed = parameters.seed
    return [_by_order(by_category[category], seed) for category in _shuffle_by_seed(list(by_category), seed)]


def chain_name(item: str, sample: int) -> str:
    """Return the name of the chain of an example."""
    return f"{item}/{sample}"


class PromptWriter(NamedTuple):
    """Writes the prompts of a stage, which a checker writes again."""

    form: Form
    parts: PrincipleParts = "whole"

    @classmethod
    def of(cls, parameters: ReviseParameters, model_kind: str | None) -> PromptWriter:
        """Return the writer of a stage; raises ValueError as :func:`form_of`."""
        return cls(parameters.form or form_of(model_kind), parameters.principle_parts)

    def critique_prompt(self, instruction: str, response: str, principle: Principle) -> str:
        """Return the prompt that asks for a critique of a response by one principle."""
        text = self._format_examples(principle) + self._format_question(instruction, response, principle)
        return f"{text}\nCritique:" if self.form == "completion" else f"{text}\n\n{chain_prompts().critique_question}"

    def revision_prompt(self, instruction: str, response: str, principle: Principle, critique: str) -> str:
        """Return the prompt that asks for the response, rewritten after the critique."""
        question = self._format_question(instruction, response, principle)
        text = f"{self._format_examples(principle)}{question}\nCritique: {critique}"
        return f"{text}\nRevision:" if self.form == "completion" else f"{text}\n\n{chain_prompts().revision_question}"

    def _format_examples(self, principle: Principle) -> str:
        """Return the finished chains that come before the question, each with an empty line after it."""
        if not principle.examples or self.parts == "sentence":
            return f"{chain_prompts().worked}\n" if self.form == "completion" else ""
        return "".join(
            f"{self._format_question(example.instruction, example.draft, principle)}"
            f"\nCritique: {example.critique}\nRevision: {example.revision}\n\n"
            for example in principle.examples
        )

    def _format_question(self, instruction: str, response: str, principle: Principle) -> str:
        prompts = chain_prompts()
        sentence = prompts.neutral if self.parts == "examples" else principle.text
        texts = {"instruction": instruction, "response": response, "principle": sentence}
        return _PLACE.sub(lambda match: texts[match[1]], prompts.question)


def faults_of(
    revision: str, before: str, instruction: str, finish: Finish, parameters: ReviseParameters, prompt: str
) -> tuple[RevisionFault, ...]:
    """Return what is wrong with a revision, which was written after ``prompt``.

    A refusal is a fault only if neither the text before nor the instruction holds such words: a refusal of an unsafe
    instruction is a good answer, which a revision may keep.
    """
    words = revision.split()
    revision_faults: list[RevisionFault] = []
    if not words:
        revision_faults.append("empty")
    elif len(words) < parameters.min_words:
        revision_faults.append("short")
    if finish == "length":
        revision_faults.append("truncated")
    if refuses(revision) and not refuses(before) and not refuses(instruction):
        revision_faults.append("refusal")
    if words and words == before.split():
        revision_faults.append("unchanged")
    if parameters.discard_copies and words and f"\nRevision: {revision.strip()}\n" in prompt:
        revision_faults.append("copied")
    return tuple(revision_faults)


def outcome(original: str, revisions: Sequence[tuple[str, Sequence[RevisionFault]]]) -> tuple[str, bool]:
    """Return the final text of a chain, and whether it can be used.

    A revision with a fault is discarded: the chain keeps the text before it.
    """
    final = original
    for text, faults in revisions:
        if not faults:
            final = text
    return final, not revisions[-1][1] and final.split() != original.split()


def contradiction_in(row: RevisionRow, revise_parameters: ReviseParameters) -> str | None:
    """Return how a statement of a row contradicts its texts; None if none does."""
    text = row.original
    for number, revision_round in enumerate(row.rounds, 1):
        written, finish, prompt = (
            revision_round.revision,
            revision_round.revision_finish,
            revision_round.revision_prompt,
        )
        revision_faults = faults_of(written, text, row.instruction, finish, revise_parameters, prompt)
        if revision_faults != revision_round.faults:
            stated, follow = (", ".join(faults) or "none" for faults in (revision_round.faults, revision_faults))
            return f"round {number}: faults {stated} are stated, {follow} follow"
        text = text if revision_faults else revision_round.revision
    final, usable = outcome(
        row.original, [(revision_round.revision, revision_round.faults) for revision_round in row.rounds]
    )
    if final != row.final:
        return "the final text is not the newest revision without a fault"
    return None if usable == row.usable else f"usable {row.usable} is stated, {usable} follows"


def _shuffle_by_seed(names: list[str], seed: int) -> list[str]:
    return sorted(names, key=lambda name: file_order(name, seed))


def _by_order(principles: list[Principle], seed: int) -> list[Principle]:
    by_id = {principle.id: principle for principle in principles}
    return [by_id[id] for id in _shuffle_by_seed(list(by_id), seed)]
