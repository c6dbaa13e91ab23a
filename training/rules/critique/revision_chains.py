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
from specs.stages.critique.parameters import ReviseParameters
from specs.stages.critique.rows import RevisionFault, RevisionRow
from specs.system.digests import Contract
from training.rules.cleaning import refuses
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


@cache
def chain_prompts() -> ChainPrompts:
    """Return the prompts that Peergate ships; raises OSError or ValueError if their file is broken."""
    from ruamel.yaml import YAML

    with (PROMPTS / "revision.yaml").open(encoding="utf-8") as handle:
        return ChainPrompts.model_validate(YAML(typ="safe").load(handle))


class Rounds(NamedTuple):
    """The principles of one chain, in order."""

    principles: tuple[Principle, ...]


def plan(constitution: Constitution, chains: Sequence[str], rounds: int, seed: int) -> list[Rounds]:
    """Return the principles of each chain, in the order of ``chains``; raises ValueError if two have the same name.

    Categories take turns over all rounds of all chains, so that their counts differ by at most one; so do the
    principles of a category. The seed decides the order of chains, categories and principles.
    """
    if len(set(chains)) != len(chains):
        raise ValueError("two chains have the same name")
    by_category: dict[str, list[Principle]] = {}
    for principle in constitution.principles:
        by_category.setdefault(principle.category, []).append(principle)
    categories = _shuffle_by_seed(list(by_category), seed)
    ordered = {name: _by_order(some, seed) for name, some in by_category.items()}
    matching_rounds: dict[str, Rounds] = {}
    use = 0
    for name in _shuffle_by_seed(list(chains), seed):
        chosen: list[Principle] = []
        for _ in range(rounds):
            category = categories[use % len(categories)]
            chosen.append(ordered[category][use // len(categories) % len(ordered[category])])
            use += 1
        matching_rounds[name] = Rounds(tuple(chosen))
    return [matching_rounds[name] for name in chains]


def chain_name(item: str, sample: int) -> str:
    """Return the name of the chain of an example."""
    return f"{item}/{sample}"


def critique_prompt(instruction: str, response: str, principle: Principle, form: Form) -> str:
    """Return the prompt that asks for a critique of a response by one principle."""
    words, text = chain_prompts(), _fill_question(instruction, response, principle)
    if form == "completion":
        return f"{words.worked}\n{text}\nCritique:"
    return f"{text}\n\n{words.critique_question}"


def revision_prompt(instruction: str, response: str, principle: Principle, critique: str, form: Form) -> str:
    """Return the prompt that asks for the response, rewritten after the critique."""
    words, text = chain_prompts(), f"{_fill_question(instruction, response, principle)}\nCritique: {critique}"
    if form == "completion":
        return f"{words.worked}\n{text}\nRevision:"
    return f"{text}\n\n{words.revision_question}"


def faults_of(
    revision: str, before: str, instruction: str, finish: Finish, min_words: int
) -> tuple[RevisionFault, ...]:
    """Return what is wrong with a revision.

    A refusal is a fault only if neither the text before nor the instruction holds such words: a refusal of an unsafe
    instruction is a good answer, which a revision may keep.
    """
    words = revision.split()
    revision_faults: list[RevisionFault] = []
    if not words:
        revision_faults.append("empty")
    elif len(words) < min_words:
        revision_faults.append("short")
    if finish == "length":
        revision_faults.append("truncated")
    if refuses(revision) and not refuses(before) and not refuses(instruction):
        revision_faults.append("refusal")
    if words and words == before.split():
        revision_faults.append("unchanged")
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
        revision_faults = faults_of(
            revision_round.revision, text, row.instruction, revision_round.revision_finish, revise_parameters.min_words
        )
        if revision_faults != revision_round.faults:
            stated, follow = (", ".join(some) or "none" for some in (revision_round.faults, revision_faults))
            return f"round {number}: faults {stated} are stated, {follow} follow"
        text = text if revision_faults else revision_round.revision
    final, usable = outcome(
        row.original, [(revision_round.revision, revision_round.faults) for revision_round in row.rounds]
    )
    if final != row.final:
        return "the final text is not the newest revision without a fault"
    return None if usable == row.usable else f"usable {row.usable} is stated, {usable} follows"


def _fill_question(instruction: str, response: str, principle: Principle) -> str:
    texts = {"instruction": instruction, "response": response, "principle": principle.text}
    return _PLACE.sub(lambda match: texts[match[1]], chain_prompts().question)


def _shuffle_by_seed(names: list[str], seed: int) -> list[str]:
    return sorted(names, key=lambda name: file_order(name, seed))


def _by_order(some: list[Principle], seed: int) -> list[Principle]:
    by_id = {principle.id: principle for principle in some}
    return [by_id[id] for id in _shuffle_by_seed(list(by_id), seed)]
