"""Hold every conversation turn by turn, all of them side by side; each answer is part of what the next one follows.

One loop for every model and condition. A round (one turn of all conversations) is kept when it is whole, so a stage
that was ended goes on after it and gives the same rows.
"""

from __future__ import annotations

from specs.stages.artifacts import Item
from specs.stages.evaluation.parameters import MultiTurnParameters
from specs.stages.evaluation.rows import ConversationRow, Turn
from training.engines.engine import make_engine, stated
from training.engines.token_sampling import Sampling
from training.jobs.job import Done, Job, run_stage
from training.jobs.row_files import GroupedRows
from training.rules.evaluation.shuffled_history import donors
from training.rules.item_prompts import conversation_ids
from training.rules.prompt_encoding import Message, form_of
from training.rules.tasks import load_items
from training.rules.tasks.conversation import turns_of


def converse(job: Job) -> Done:
    """Write ``rows``: one for each conversation, with all of its turns.

    Raises:
        ValueError: an item is no conversation, or no other one can stand in for its history.
        EncodingFault: a prompt is not encoded as the text it is, or a model declared instruct has no chat template.
    """
    parameters = job.parameters
    assert isinstance(parameters, MultiTurnParameters)
    form = form_of(job.order.declared())
    items = load_items(job.inputs["items"])
    turns = [turns_of(item) for item in items]
    shown = _shown(items, turns, parameters)
    size, folder = parameters.batch_size, job.inputs["model"]
    engine = make_engine(parameters.engine, folder, size, scratch=job.folder, share=False)
    sampling = Sampling(parameters.max_new_tokens, stops=parameters.stops)
    kept = GroupedRows(job.folder / "shards" / "rounds.jsonl", Turn)
    rounds = max(len(some) for some in turns)
    for number in range(len(kept.groups), rounds):
        going = [place for place, some in enumerate(turns) if number < len(some)]
        prompts = [
            conversation_ids(
                engine.tokenizer, _messages(place, number, turns, kept, shown[place]), parameters.prompting, form
            )
            for place in going
        ]
        outputs = engine.complete(prompts, sampling, seed=parameters.seed)
        kept.add(
            [
                Turn(
                    user=turns[place][number],
                    output=output.text,
                    prompt_tokens=len(prompt),
                    output_tokens=len(output.ids),
                    truncated=output.truncated,
                    finish=output.finish,
                    stop=output.stop,
                )
                for place, prompt, (output,) in zip(going, prompts, outputs, strict=True)
            ]
        )
        job.progress(number + 1, rounds, "rounds")
    rows = [
        ConversationRow(
            item=item.id, turns=tuple(_turn(place, number, turns, kept) for number in range(len(turns[place])))
        )
        for place, item in enumerate(items)
    ]
    job.write_rows("rows", rows)
    tokens = sum(turn.output_tokens for row in rows for turn in row.turns)
    effective = parameters.model_dump(mode="json") | {"engine": engine.name, "decoding": "greedy", "form": form}
    return Done(engine.device, engine.dtype, tokens, effective, stated(engine))


def _turn(place: int, number: int, turns: list[tuple[str, ...]], kept: GroupedRows[Turn]) -> Turn:
    """Return a turn that was held: a round holds those conversations that have one, in their order."""
    before = sum(number < len(some) for some in turns[:place])
    return kept.groups[number][before]


def _shown(items: list[Item], turns: list[tuple[str, ...]], parameters: MultiTurnParameters) -> list[tuple[int, ...]]:
    """Return for each conversation whose turn stands in each place of its history: its own, none or another's."""
    if parameters.history == "shuffled":
        return donors(items, parameters.seed)
    return [(place,) * (len(some) - 1) if parameters.history == "whole" else () for place, some in enumerate(turns)]


def _messages(
    place: int, number: int, turns: list[tuple[str, ...]], kept: GroupedRows[Turn], shown: tuple[int, ...]
) -> list[Message]:
    messages: list[Message] = []
    for earlier, whose in enumerate(shown[:number]):
        answered = _turn(whose, earlier, turns, kept).output.strip()
        messages.append({"role": "user", "content": turns[whose][earlier]})
        messages.append({"role": "assistant", "content": answered})
    return [*messages, {"role": "user", "content": turns[place][number]}]


if __name__ == "__main__":
    run_stage("multi_turn", converse)
