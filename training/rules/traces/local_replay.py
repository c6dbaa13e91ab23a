"""States of registered transcripts, and the pairs that answers of one local model give: for the job and its judge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import NamedTuple

from specs.masking import forms_only
from specs.stages.artifacts import Item, Preference, Taught
from specs.stages.traces.parameters import ReplayTracesParameters
from specs.stages.traces.rows import TraceAnswer
from specs.traces.teachers import Agreement
from specs.traces.turn import Account
from training.rules.traces.ingest import ingest
from training.rules.traces.pairs import LEAST_FAMILIES, TRACE, Answered, make_pairs
from training.rules.traces.rendering import tools_of
from training.rules.traces.shown_states import Shown, asked_of, authors_of, chosen_states, unknown_authors


class States(NamedTuple):
    """The states that are shown, and what the transcripts are."""

    shown: list[Shown]
    account: Account
    authors: tuple[str, ...]
    """The families of the models that wrote the transcripts."""
    tools: dict[str, list[str]]

    def items(self) -> list[Item]:
        """Return what is asked of each state."""
        return [
            Item(id=one.state.id, group=one.state.thread, kind="state", prompt=asked_of(one), constraint={})
            for one in self.shown
        ]


def states_in(transcripts: Sequence[Item], given: ReplayTracesParameters) -> States:
    """Return the states of packed transcripts.

    Raises:
        ValueError: the name of a transcript is no path below a folder.
        UserError: no answer of a model is in them.
    """
    with TemporaryDirectory(prefix="peergate-traces-") as folder:
        for one in transcripts:
            name = PurePosixPath(one.id)
            if name.is_absolute() or ".." in name.parts or not name.parts:
                raise ValueError(f"'{one.id}' is no name of a transcript")
            path = Path(folder, *name.parts).with_suffix(".jsonl")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(one.prompt, encoding="utf-8", newline="")
        # What a person's environment knows was masked when they were registered.
        found = ingest([Path(folder)], forms_only())
    turns = {one.id: one for one in found.turns}
    shown = chosen_states(turns, given.prompt_characters, given.max_states, given.seed, forms_only().text)
    return States(shown, found.account, authors_of(found.turns), tools_of(found.turns))


class Answers(NamedTuple):
    """The pairs that answers give, and how far they agree."""

    pairs: list[Preference]
    agreement: Agreement


class _Said(NamedTuple):
    text: str
    stop: str


def stopped(row: TraceAnswer) -> _Said:
    """Return an answer with its end: one that the limit of tokens cut off is not whole."""
    return _Said(row.text, "length" if row.finish == "length" else "end")


def pairs_of(states: States, rows: Iterable[TraceAnswer], given: ReplayTracesParameters) -> Answers:
    """Return the pairs of the states in which two answers do the same, and somebody did something else."""
    voices = [f"{given.teacher}-{sample}" for sample in range(given.answers)]
    said: dict[str, dict[str, _Said]] = {}
    for row in rows:
        if row.sample < given.answers:
            said.setdefault(row.item, {})[voices[row.sample]] = stopped(row)
    answered = [Answered(one.state, asked_of(one), said.get(one.state.id, {})) for one in states.shown]
    made = make_pairs(answered, {voice: voice for voice in voices}, states.tools, LEAST_FAMILIES)
    circular = circles_of(states, given)
    pairs = [
        Preference(
            prompt=one.prompt,
            chosen=one.chosen,
            rejected=one.rejected,
            group=one.group,
            source="given",
            taught=Taught(
                families=tuple(sorted({given.teacher} | (set(states.authors) if TRACE in one.chosen_by else set()))),
                licenses=(f"{given.teacher}: {given.license}",),
                student=given.student,
                circular=circular,
                override=given.circular,
            ),
        )
        for one in made.pairs
    ]
    return Answers(pairs, made.agreement)


def circles_of(states: States, given: ReplayTracesParameters) -> tuple[str, ...]:
    """Return why a student learns in a circle from these answers; at least that they are of one model."""
    found = [f"all answers are of one model of the family '{given.teacher}': that they agree says nothing"]
    if given.teacher == given.student:
        found.append(f"the teacher is of the student's own family '{given.teacher}'")
    if given.teacher in states.authors:
        found.append(f"the teacher is of the family '{given.teacher}', which wrote the traces")
    found += unknown_authors(states.authors)
    return tuple(found)
