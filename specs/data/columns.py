"""Which columns and keys each reader of rows reads, which it must not pass over, and which it ignores.

A column or key that says something about what is learned or right, and that a reader cannot honour, is refused by its
name. What no table here names is ignored, and listed by ``peergate init`` and ``peergate spec check``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from specs.stages.base.artifacts import As
from specs.system.yaml.problems import printable, suggest

Columns = Mapping[str, str | tuple[str, ...]]
"""Columns that a reader reads -> those of the file they are taken from; several are joined by an empty line."""

_QUESTION = ("group", "before", "system", "system_prompt")
_RIGHT = ("answer", "answers")
READS: Mapping[str, frozenset[str]] = {
    "items": frozenset((*_QUESTION, "id", "kind", "prompt", "question", "messages", "constraint", *_RIGHT)),
    "examples": frozenset((*_QUESTION, "id", "kind", "prompt", "completion", "messages", "question", *_RIGHT)),
    "preferences": frozenset((*_QUESTION, "prompt", "question", "chosen", "rejected", "taught")),
    "texts": frozenset(("id", "group", "kind", "text")),
}
"""The columns that become a part of a row. Other columns of items, text or numbers, are for their verifier."""
MESSAGE_READS = frozenset(("role", "content", "from", "value"))
"""The keys of a message that become a turn."""
RIGHT_ANSWER = re.compile(r"answer(_\d+)?")
"""The names of an item's right answers."""
VERDICTS = ("label", "is_correct", "correct", "accepted", "is_accepted", "passed", "desirable")
"""Columns that say whether a row's response is a right one."""
WEIGHTS = ("weight", "loss_weight", "sample_weight")
TURN_WEIGHTS = ("weight", "train", "training", "trainable", "loss", "loss_mask", "learnable")
"""Keys of a message that say whether it is learned."""


class Meaning(NamedTuple):
    """What a column or key says that is not honoured."""

    message: str
    way_out: str
    applies: Callable[[Any], bool] = bool
    """Whether a value says it at all."""


_TOOLS = Meaning("holds tools or tool calls, which are neither prompted nor learned", "write calls into the text")
_THOUGHTS = Meaning("holds reasoning that would not be learned", "write it into the content, such as <think>…</think>")
_MEDIA = Meaning("holds images or sound, and only text is read", "use rows of text")
_PART = Meaning("may be a part of the prompt", "join them")
_CHOICES = Meaning(
    "holds choices that the prompt may not show, and whose number says nothing",
    "write the choices into the prompt, and as the answer the letter or text of the right one",
)
_EVALUATED = ("test", "validation", "val", "valid", "dev", "eval", "heldout")


def _is_evaluated(value: Any) -> bool:
    return str(value).lower() in _EVALUATED


_SPLIT = Meaning(
    "marks a row that is not for training",
    "keep the rows of one split",
    _is_evaluated,
)
_ALSO_RIGHT = Meaning("holds right answers that would count as wrong", "write all of them as a list into `answer`")


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


_TOKENS = Meaning(
    "says which tokens are learned, which the reader decides itself",
    "write `weight: 0` on the turns that are not to be learned",
    _is_list,
)
_TEMPLATE = Meaning("changes how the chat template renders the row", "use rows without it")
_CALLS = ("tool_calls", "tools", "functions", "function_call", "tool_call_id")
_REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking", "rationale", "chain_of_thought", "cot")
_FURTHER = (
    *("aliases", "answer_aliases", "alternative_answers", "other_answers", "acceptable_answers", "accepted_answers"),
    *("possible_answers", "correct_answers", "valid_answers", "reference_answers", "references", "ground_truths"),
)
_MASKS = ("loss_mask", "completion_mask", "assistant_masks", "labels", "input_ids")
_MEDIA_COLUMNS = ("image", "images", "audio", "audios", "video", "videos")
MEANINGS: Mapping[str, Meaning] = {
    **dict.fromkeys(_CALLS, _TOOLS),
    **dict.fromkeys(_REASONING, _THOUGHTS),
    **dict.fromkeys(_MEDIA_COLUMNS, _MEDIA),
    **dict.fromkeys(("choices", "options", "candidates"), _CHOICES),
    **dict.fromkeys(_FURTHER, _ALSO_RIGHT),
    **dict.fromkeys(_MASKS, _TOKENS),
    **dict.fromkeys(("input", "context", "passage", "history"), _PART),
    "chat_template_kwargs": _TEMPLATE,
    "split": _SPLIT,
}
"""Columns that readers of examples, preferences and items refuse where their value says something."""
MESSAGE_MEANINGS: Mapping[str, Meaning] = {
    **dict.fromkeys(_CALLS, _TOOLS),
    **dict.fromkeys(_REASONING, _THOUGHTS),
    **dict.fromkeys(_MEDIA_COLUMNS, _MEDIA),
}
_SCORES = re.compile(r"score|rating|reward|quality")
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "messages": ("messages", "conversations", "conversation", "dialogue", "dialog", "turns"),
    "prompt": ("prompt", "question", "instruction", "query", "problem", "user", "input", "source", "text", "sentence"),
    "completion": ("completion", "response", "output", "answer", "answers", "solution", "target", "assistant", "label"),
    "chosen": ("chosen", "preferred", "chosen_response", "response_chosen"),
    "rejected": ("rejected", "dispreferred", "rejected_response", "response_rejected"),
}
"""Common names of columns, clearest first. They are proposed and never used without confirmation."""


class Wrong(Exception):
    """A row that cannot be converted: the column, what is wrong, what to do."""

    def __init__(self, column: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.column, self.message, self.hint = column, message, hint


class SkippedRow(Exception):
    """A row that says of itself that nothing is to be learned from it; the message says how."""


class Selection(NamedTuple):
    """Which columns of a file are read under which names, and which are passed over on purpose."""

    columns: Columns = {}
    drop: tuple[str, ...] = ()

    def faults(self, current: As | None, present: set[str]) -> list[str]:
        """Return in words which names of the selection mean nothing for rows with the columns that are present."""
        faults: list[str] = []
        every = frozenset[str]().union(*READS.values()) if current is None else READS.get(current, frozenset())
        for name, sources in self.columns.items():
            if name not in every and current != "items":
                faults.append(
                    f"no reader of {current or 'rows'} has a column '{name}' ({suggest(name, sorted(every))})"
                )
            for source in (sources,) if isinstance(sources, str) else sources:
                if source not in present:
                    faults.append(f"no column '{source}' ({suggest(source, sorted(present))})")
        return faults

    def select(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values of a row by the names under which they are read."""
        used = {source for names in self.columns.values() for source in ((names,) if isinstance(names, str) else names)}
        rest = {
            name: value
            for name, value in values.items()
            if name not in used and name not in self.drop and name not in self.columns
        }
        for name, sources in self.columns.items():
            if isinstance(sources, str):
                parts = [values[sources]] if sources in values else []
            else:
                parts = [values[source] for source in sources if values.get(source) not in (None, "")]
            if parts:
                rest[name] = parts[0] if len(parts) == 1 else "\n\n".join(map(str, parts))
        return rest


NO_SELECTION = Selection()


def require_honoured(current: As, values: Mapping[str, Any]) -> None:
    """Refuse a row with a column that says what a reader cannot honour.

    Raises:
        Wrong: such a column, with what to do.
        LeftOut: the row says that it is not to be learned.
    """
    if current == "texts":
        return
    for name, meaning in MEANINGS.items():
        # A verifier may read text and numbers of an item.
        own = current == "items" and isinstance(values.get(name), str | int | float)
        if name in values and not own and meaning.applies(values[name]):
            raise Wrong(name, meaning.message, f"{_way_out(name, meaning, values)}; or {_drop_hint(name)}")
    if current != "items" or any(map(RIGHT_ANSWER.fullmatch, values)):
        _require_right(current, values)
    if current == "preferences":
        _require_order(values)


def require_honoured_keys(message: Mapping[str, Any], drop: Iterable[str]) -> None:
    """Refuse a message with a key that says what is not honoured; raises Wrong."""
    for name, meaning in MESSAGE_MEANINGS.items():
        if name not in drop and name in message and meaning.applies(message[name]):
            raise Wrong(name, meaning.message, f"{meaning.way_out}; or {_drop_hint(name)}")


def is_learned(message: Mapping[str, Any], drop: Iterable[str]) -> bool | None:
    """Return whether a message says that it is learned, or that it is not; None where it says neither; raises Wrong."""
    for name in TURN_WEIGHTS:
        if name in message and name not in drop and message[name] is not None:
            value = _boolean(message[name])
            value = {0: False, 1: True}.get(message[name]) if value is None else value
            if value is None:
                raise Wrong(name, f"invalid weight {message[name]} of a turn", f"0 or 1; {_drop_hint(name)}")
            return value
    return None


def _require_right(current: As, values: Mapping[str, Any]) -> None:
    for name in VERDICTS:
        if (value := values.get(name)) is None:
            continue
        if name == "label" and not isinstance(value, bool) and value in (0, 1, "0", "1"):
            message = f"{value} may be a class, or say whether the response is right"
            raise Wrong(name, message, f"write true or false if it says so, else {_drop_hint(name)}")
        if _boolean(value) is False:
            if current == "examples":
                raise SkippedRow(f"`{name}` is false")
            raise Wrong(name, "marks the answer as wrong", f"remove the row; or {_drop_hint(name)}")
    for name in WEIGHTS:
        if (value := values.get(name)) is None or current == "items":
            continue
        if str(value) == "0":
            raise SkippedRow(f"`{name}` is 0")
        if str(value) != "1":
            raise Wrong(name, f"invalid weight {value} of a row", f"0 or 1; or {_drop_hint(name)}")


def _require_order(values: Mapping[str, Any]) -> None:
    """Refuse a pair whose scores or margin say that the rejected response is the better one."""
    margin = values.get("margin")
    if isinstance(margin, int | float) and margin < 0:
        hint = f"columns: {{chosen: rejected, rejected: chosen}} if they are swapped; or {_drop_hint('margin')}"
        raise Wrong("margin", f"is {margin}: the rejected response is better", hint)
    for name, value in values.items():
        other = name.replace("chosen", "rejected")
        if "chosen" in name and _SCORES.search(name) and other in values:
            try:
                if float(value) >= float(values[other]):
                    continue
            except (TypeError, ValueError):
                continue
            hint = f"columns: {{chosen: rejected, rejected: chosen}} if they are swapped; or {_drop_hint(name)}"
            raise Wrong(name, f"is {value}, and {other} is {values[other]}: the rejected response is better", hint)


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).strip().lower())


def _way_out(name: str, meaning: Meaning, values: Mapping[str, Any]) -> str:
    if meaning is _ALSO_RIGHT:
        return f"columns: {{answer: {name}}} if it holds all of them, else {meaning.way_out}"
    if meaning is not _PART:
        return meaning.way_out
    request = "prompt" if "prompt" in values else "question"
    parts = f"{request}, {name}" if name == "input" else f"{name}, {request}"
    return f"columns: {{prompt: [{parts}]{', completion: answer' if 'answer' in values else ''}}} joins them"


def _drop_hint(name: str) -> str:
    return f"`drop: [{name}]` (init: --drop {name}) to pass over it"


def ignored_columns(current: As, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the columns of rows, and the keys of their messages (``messages.name``), that a reader ignores."""
    names: set[str] = set()
    for values in rows:
        reads = READS.get(current, frozenset()) - _replaced_columns(current, values)
        for name, value in values.items():
            answers = current == "examples" and "answer" in reads and is_right_answer(name)
            known = name in reads or current == "items" or answers
            if not known and not (name in (*VERDICTS, *WEIGHTS) and str(value).lower() in ("true", "false", "0", "1")):
                names.add(name)
            if name in reads and isinstance(value, list):
                messages = [message for message in value if isinstance(message, dict)]
                keys = {key for message in messages for key, inner in message.items() if inner is not None}
                names |= {f"{name}.{key}" for key in keys - MESSAGE_READS - set(TURN_WEIGHTS)}
    return sorted(map(printable, names))


def _replaced_columns(current: As, values: Mapping[str, Any]) -> frozenset[str]:
    """Return the columns of a row in whose place another of its columns is read."""
    if current == "examples" and "messages" in values:
        return frozenset(("prompt", "completion", "question", "before", *_RIGHT))
    answers = _RIGHT if "completion" in values else ()
    return frozenset((*answers, *(("question",) if "prompt" in values else ())))


def is_right_answer(name: str) -> bool:
    """Return whether a column holds a right answer: ``answer``, ``answers``, ``answer_2``, …."""
    return name == "answers" or RIGHT_ANSWER.fullmatch(name) is not None


def proposal(columns: Iterable[str]) -> str:
    """Return the mapping that a person may mean by columns with other names, for ``columns:`` and init; or nothing."""
    by_name = {name.casefold().replace(" ", "_").replace("-", "_"): name for name in columns}
    first = {
        name: next((by_name[alias] for alias in aliases if alias in by_name), "") for name, aliases in _ALIASES.items()
    }
    mapping = {name: column for name, column in first.items() if column}
    if "messages" in mapping:
        mapping = {"messages": mapping["messages"]}
    elif "chosen" in mapping and "rejected" in mapping:
        mapping.pop("completion", None)
    elif not {"prompt", "completion"} <= mapping.keys():
        return ""
    written = {name: source for name, source in mapping.items() if name != source}
    joined = {name: [source] for name, source in written.items()}
    if mapping.get("prompt") != by_name.get("input") and "input" in by_name and "prompt" in mapping:
        joined["prompt"] = [mapping["prompt"], by_name["input"]]
    if not joined or len(set(mapping.values())) < len(mapping):
        return ""
    lists = {name: parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]" for name, parts in joined.items()}
    spec = ", ".join(f"{name}: {source}" for name, source in lists.items())
    option = ",".join(f"{name}={'+'.join(parts)}" for name, parts in joined.items())
    return printable(f"columns: {{{spec}}} (init: --columns {option})")
