"""Hold all conversations side by side, turn by turn; each answer is part of what the next one follows.

One loop serves every model and condition. A round is one turn of all conversations that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from specs.jobs.job_records import LEFT
from specs.stages.base.artifacts import Item
from specs.stages.base.sampling import PromptRead, digest_ids
from specs.stages.evaluation.parameters import MultiTurnParameters
from specs.stages.evaluation.rows import ConversationRow, ConversationTurn
from training.engines.engine_factory import make_engine
from training.engines.token_sampling import TokenSampling
from training.jobs.job import Job, StageResult
from training.jobs.row_files import GroupedRows, read_rows
from training.jobs.witness.prompted_answers import PromptedAnswer, UnusableRow, answer
from training.rules.prompt_encoding import Message, conversation_ids, form_of
from training.rules.tasks import load_items
from training.rules.tasks.conversation import donors, turns_of


def converse(job: Job[MultiTurnParameters]) -> StageResult:
    """Write ``rows``: one for each conversation, with all of its turns.

    Raises ValueError if an item is not a conversation or no history can replace its own, EncodingFault as every stage.
    """
    parameters = job.parameters
    form = form_of(job.order.model_kind)
    items = load_items(job.inputs["items"])
    turns = [turns_of(item) for item in items]
    counts = _choose_histories(items, turns, parameters)
    size, folder = parameters.batch_size, job.inputs["model"]
    engine = make_engine(parameters.engine, folder, size, scratch=job.folder, share=False)
    sampling = TokenSampling(parameters.max_new_tokens, stops=parameters.stops)
    grouped_rows = job.shard("rounds", ConversationTurn)
    rounds = [
        [place for place, user_turns in enumerate(turns) if number < len(user_turns)]
        for number in range(max(len(user_turns) for user_turns in turns))
    ]

    def answer_turns(number: int, going: Sequence[int]) -> list[ConversationTurn]:
        def get_output(whose: int, earlier: int) -> str:
            return _turn(whose, earlier, turns, grouped_rows).output

        messages = [_messages(place, number, turns, get_output, counts[place]) for place in going]
        prompts = [
            conversation_ids(engine.tokenizer, conversation, parameters.prompting, form) for conversation in messages
        ]
        outputs = engine.complete(prompts, sampling, seed=parameters.seed, on_batch=job.advance)
        return [
            ConversationTurn(
                user=turns[place][number],
                prompt_tokens=len(prompt),
                prompt_digest=digest_ids(prompt),
                truncated=output.truncated,
                **output.as_row(),
            )
            for place, prompt, (output,) in zip(going, prompts, outputs, strict=True)
        ]

    job.fill(grouped_rows, rounds, answer_turns, "turns")
    rows = [
        ConversationRow(
            item=item.id, turns=tuple(_turn(place, number, turns, grouped_rows) for number in range(len(turns[place])))
        )
        for place, item in enumerate(items)
    ]
    job.write_rows("rows", rows)
    tokens = sum(turn.output_tokens for row in rows for turn in row.turns)
    effective = parameters.model_dump(mode="json") | {"engine": engine.name, "decoding": "greedy", "form": form}
    return StageResult(engine.device, engine.dtype, tokens, effective, engine.describe_for_manifest())


def _turn(
    place: int, number: int, turns: list[tuple[str, ...]], grouped_rows: GroupedRows[ConversationTurn]
) -> ConversationTurn:
    """Return a turn: a round holds the turns of the conversations that are long enough, in their order."""
    before = sum(number < len(user_turns) for user_turns in turns[:place])
    return grouped_rows.groups[number][before]


def _choose_histories(
    items: list[Item], turns: list[tuple[str, ...]], parameters: MultiTurnParameters
) -> list[tuple[int, ...]]:
    """Return for each conversation whose turns its history shows: its own, none, or those of others."""
    if parameters.history == "shuffled":
        return donors(items, parameters.seed)
    return [
        (place,) * (len(user_turns) - 1) if parameters.history == "whole" else ()
        for place, user_turns in enumerate(turns)
    ]


def _messages(
    place: int,
    number: int,
    turns: list[tuple[str, ...]],
    function: Callable[[int, int], str],
    counts: tuple[int, ...],
) -> list[Message]:
    messages: list[Message] = []
    for earlier, whose in enumerate(counts[:number]):
        answered = function(whose, earlier).strip()
        messages.append({"role": "user", "content": turns[whose][earlier]})
        messages.append({"role": "assistant", "content": answered})
    return [*messages, {"role": "user", "content": turns[place][number]}]


def build_witness_prompts(job: Job[MultiTurnParameters], tokenizer: Any, places: Sequence[int]) -> list[PromptedAnswer]:
    """Return what the model was asked in each turn of these rows; raises NotAsked and EncodingFault."""
    parameters, form = job.parameters, form_of(job.order.model_kind)
    items, rows = load_items(job.inputs["items"]), read_rows(job.inputs[f"{LEFT}rows"], ConversationRow)
    turns = [turns_of(item) for item in items]
    pairs = [(item.id, len(user_turns)) for item, user_turns in zip(items, turns, strict=True)]
    if [(row.item, len(row.turns)) for row in rows] != pairs:
        raise UnusableRow("expected one row for each conversation, with all of its turns")
    counts, sampling = (
        _choose_histories(items, turns, parameters),
        TokenSampling(parameters.max_new_tokens, stops=parameters.stops),
    )
    review_requests: list[PromptedAnswer] = []
    for place in places:
        for number, turn in enumerate(rows[place].turns):
            messages = _messages(place, number, turns, lambda whose, at: rows[whose].turns[at].output, counts[place])
            prompt = conversation_ids(tokenizer, messages, parameters.prompting, form)
            part, ids = f"turn {number + 1}", turn.answer_ids
            stated = PromptRead(turn.prompt_digest, turn.prompt_tokens)
            review_requests.append(
                answer(place, prompt, sampling, ids=ids, text=turn.output, finish=turn.finish, part=part, stated=stated)
            )
    return review_requests
