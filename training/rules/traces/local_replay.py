"""States of registered transcripts, and the pairs that answers of one local model give: for the job and its judge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import NamedTuple

from specs.stages.base.artifacts import Item, Preference, Taught
from specs.stages.traces.parameters import ReplayTracesParameters
from specs.stages.traces.rows import TraceAnswer
from specs.system.masking import forms_only
from specs.traces.turn import Account, Agreement
from training.rules.traces.ingest import ingest
from training.rules.traces.pairs import LEAST_FAMILIES, TRACE, AnsweredState, make_pairs
from training.rules.traces.rendering import tools_of
from training.rules.traces.shown_states import ShownState, authors_of, chosen_states, teacher_prompt_of, unknown_authors


class States(NamedTuple):
    """The states that are shown, and what the transcripts are."""

    shown_states: list[ShownState]
    account: Account
    authors: tuple[str, ...]
    """The families of the models that wrote the transcripts."""
    tools: dict[str, list[str]]

    def items(self) -> list[Item]:
        """Return the request to each state."""
        return [
            Item(
                id=value.state.id,
                group=value.state.thread,
                kind="state",
                prompt=teacher_prompt_of(value),
                constraint={},
            )
            for value in self.shown_states
        ]


def states_in(transcripts: Sequence[Item], traces_parameters: ReplayTracesParameters) -> States:
    """Return the states of packed transcripts.

    Raises:
        ValueError: the name of a transcript is not a path below a folder.
        UserError: no answer of a model is in them.
    """
    with TemporaryDirectory(prefix="peergate-traces-") as folder:
        for item in transcripts:
            name = PurePosixPath(item.id)
            if name.is_absolute() or ".." in name.parts or not name.parts:
                raise ValueError(f"'{item.id}' is not a name of a transcript")
            path = Path(folder, *name.parts).with_suffix(".jsonl")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(item.prompt, encoding="utf-8", newline="")
        # What a person's environment knows was masked when they were registered.
        result = ingest([Path(folder)], forms_only())
    turns = {turn.id: turn for turn in result.turns}
    visible = chosen_states(
        turns,
        traces_parameters.prompt_characters,
        traces_parameters.max_states,
        traces_parameters.seed,
        forms_only().text,
    )
    return States(visible, result.account, authors_of(result.turns), tools_of(result.turns))


class AnswerPreferences(NamedTuple):
    """The pairs that answers give, and how far they agree."""

    pairs: list[Preference]
    agreement: Agreement


class _SampledReply(NamedTuple):
    text: str
    stop: str


def make_reply(row: TraceAnswer) -> _SampledReply:
    """Return an answer with its end. An answer cut off by the limit of tokens is incomplete."""
    return _SampledReply(row.text, "length" if row.finish == "length" else "end")


def pairs_of(
    states: States, rows: Iterable[TraceAnswer], traces_parameters: ReplayTracesParameters
) -> AnswerPreferences:
    """Return the pairs of the states in which two answers do the same, and someone did something else."""
    voices = [f"{traces_parameters.teacher}-{sample}" for sample in range(traces_parameters.answers)]
    statements: dict[str, dict[str, _SampledReply]] = {}
    for row in rows:
        if row.sample < traces_parameters.answers:
            statements.setdefault(row.item, {})[voices[row.sample]] = make_reply(row)
    answered = [
        AnsweredState(value.state, teacher_prompt_of(value), statements.get(value.state.id, {}))
        for value in states.shown_states
    ]
    made = make_pairs(answered, {voice: voice for voice in voices}, states.tools, LEAST_FAMILIES)
    circular = circles_of(states, traces_parameters)
    pairs = [
        Preference(
            prompt=pair.prompt,
            chosen=pair.chosen,
            rejected=pair.rejected,
            group=pair.group,
            source="given",
            taught=Taught(
                families=tuple(
                    sorted({traces_parameters.teacher} | (set(states.authors) if TRACE in pair.chosen_by else set()))
                ),
                licenses=(f"{traces_parameters.teacher}: {traces_parameters.license}",),
                student=traces_parameters.student,
                circular=circular,
                override=traces_parameters.circular,
            ),
        )
        for pair in made.pairs
    ]
    return AnswerPreferences(pairs, made.agreement)


def circles_of(states: States, traces_parameters: ReplayTracesParameters) -> tuple[str, ...]:
    """Return why a student learns in a circle from these answers; at least that they are of one model."""
    texts = [f"all answers are of one model of the family '{traces_parameters.teacher}': that they agree says nothing"]
    if traces_parameters.teacher == traces_parameters.student:
        texts.append(f"the teacher is of the student's own family '{traces_parameters.teacher}'")
    if traces_parameters.teacher in states.authors:
        texts.append(f"the teacher is of the family '{traces_parameters.teacher}', which wrote the traces")
    texts += unknown_authors(states.authors)
    return tuple(texts)
