"""Reads texts of a row, and conversations in the forms that people have."""

from __future__ import annotations

from typing import Any

from specs.data.columns import SkippedRow, Wrong, is_learned, require_honoured_keys
from specs.stages.base.artifacts import DialogueTurn

_ROLES = {"developer": "system", "human": "user", "gpt": "assistant"}
"""Roles as OpenAI and ShareGPT call them."""
_MESSAGES = 'such as [{"role": "user", "content": "…"}, …]'


def read_prompt(values: dict[str, Any], column: str, drop: tuple[str, ...]) -> tuple[tuple[DialogueTurn, ...], str]:
    """Return a prompt, which is text or messages that end with the user's, after the turns before it."""
    earlier = values.get("before")
    if isinstance(values.get(column), list):
        if earlier is not None:
            raise Wrong("before", f"`{column}` has earlier turns already", "give them once")
        messages = values[column]
    else:
        if earlier is not None and not isinstance(earlier, list):
            raise Wrong("before", "is not a list of messages", _MESSAGES)
        messages = [*(earlier or ()), {"role": "user", "content": require_text(values, column)}]
    (*before, turn), _ = read_turns(values, "before" if earlier else column, messages, drop, answered=False)
    return tuple(before), turn.content


def read_response(values: dict[str, Any], column: str, drop: tuple[str, ...]) -> str:
    """Return a response: text, or the assistant's message."""
    value = values.get(column)
    if not isinstance(value, list) or not all(isinstance(message, dict) for message in value):
        return require_text(values, column)
    if len(value) != 1 or _role(value[0]) != "assistant":
        raise Wrong(column, "is not one turn of the assistant")
    require_honoured_keys(value[0], drop)
    if is_learned(value[0], drop) is False:
        raise SkippedRow("the weights exclude every turn from training")
    return require_text({column: _content(value[0])}, column)


def read_turns(
    values: dict[str, Any], column: str, messages: Any, drop: tuple[str, ...], *, answered: bool
) -> tuple[list[DialogueTurn], list[bool | None]]:
    """Return the turns of a conversation, and of each whether it says that it is learned.

    An optional system turn, which may have its own column, then user and assistant by turns. Where it is
    ``answered``, the assistant has the last one, else the user.
    """
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise Wrong(column, "is not a list of messages", _MESSAGES)
    for message in messages:
        require_honoured_keys(message, drop)
        if _role(message) != "assistant" and is_learned(message, drop):
            raise Wrong(column, f"says that a turn of the {_role(message)} is learned", "only the assistant's are")
    # Exports write an empty turn for a missing system prompt.
    messages = [message for message in messages if _role(message) != "system" or _content(message) not in (None, "")]
    messages = _with_system(values, messages)
    roles = [_role(message) for message in messages]
    spoken = roles[1:] if roles[:1] == ["system"] else roles
    texts = ["user", "assistant"] * len(spoken)
    if spoken != texts[: len(spoken)] or not spoken:
        hint = "user and assistant by turns, perhaps the system's turn before them"
        if any(role in ("tool", "function", "observation") for role in roles):
            hint = f"calls of tools are not learned; {hint}"
        elif any(role == following for role, following in zip(spoken, spoken[1:], strict=False)):
            hint = f"join two turns of one speaker; {hint}"
        raise Wrong(column, f"its turns are {', '.join(roles)}" if roles else "has no turns", hint)
    if answered != (spoken[-1] == "assistant"):
        if answered:
            hint = "the assistant's last turn is what the model learns to say: remove what comes after it"
            raise Wrong(column, "the last turn is not the assistant's", hint)
        raise Wrong(column, "ends with the assistant's turn", "a prompt ends with the user's")
    contents = [require_text({column: _content(message)}, column) for message in messages]
    turns = [DialogueTurn(role=role, content=text) for role, text in zip(roles, contents, strict=True)]  # type: ignore[arg-type]
    return turns, [is_learned(message, drop) for message in messages]


def _with_system(values: dict[str, Any], messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with the row's system prompt as their first turn."""
    for name in ("system", "system_prompt"):
        if text := text_of(values, name).strip():
            first = _content(messages[0]) if messages and _role(messages[0]) == "system" else None
            if first is None:
                messages = [{"role": "system", "content": text_of(values, name)}, *messages]
            elif not isinstance(first, str) or first.strip() != text:
                raise Wrong(name, "is another text than the system's turn in the row", "give it once")
    return messages


def _role(message: dict[str, Any]) -> str:
    role = str(message.get("role", message.get("from")))
    return _ROLES.get(role, role)


def _content(message: dict[str, Any]) -> Any:
    """Return the text of a message, whose content may be a list of texts; raises Wrong for parts that are none."""
    content = message.get("content", message.get("value"))
    if not isinstance(content, list):
        return content
    texts: list[str] = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise Wrong("content", f"has a part of type {kind}, and only text is read", "omit the part")
        texts.append(part["text"])
    return "".join(texts)


def require_text(values: dict[str, Any], column: str) -> str:
    """Return the text of a column; raises Wrong if it is missing, empty or no text."""
    text = text_of(values, column)
    if not text or not text.strip():
        raise Wrong(column, "is empty" if column in values else "is missing")
    return text


def text_of(values: dict[str, Any], column: str) -> str:
    """Return the text of a column, empty without it; raises Wrong if it is neither text nor a number."""
    value = values.get(column)
    if value is None:
        return ""
    if isinstance(value, bool):
        raise Wrong(column, "a boolean, not text", "write the words that are meant, such as yes and no")
    if not isinstance(value, str | int | float):
        hint = "one text; `answer` may be a list of right answers" if isinstance(value, list) else "write it as text"
        raise Wrong(column, f"a {type(value).__name__}, not text", hint)
    return str(value)
