"""Do registered rows fit what trains on them: length, chat template and its tokens, by the model's own tokenizer?

Nothing is tokenized that cannot be too long: a token is at least a byte of its text. The checks of the stages look
again, at what was really encoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from specs.session.session_spec import SessionSpec
from specs.stages.base.artifacts import Example, Item, Preference
from specs.stages.registry import Stage, kind_of
from specs.system.errors import PluginFault
from specs.system.regular_files import read_regular
from specs.system.yaml.problems import Loc
from training.rules.chat_template import ChatTemplate, template_faults
from training.rules.prompt_encoding import EncodingFault, form_of, item_ids, template_tokens
from training.rules.tokenizer_files import chat_template_of

FRAME = 24
"""Bytes from which a template's tokens around a turn are counted; those of known templates take fewer tokens."""
_LEAST_CONTEXT = 512
"""No model that is trained here reads fewer tokens."""
_MARK = re.compile(r"<\S|\[/?[A-Z]{2,}")
"""How tokens of a template begin: ``<|im_end|>``, ``</s>``, ``[INST]``."""
Row = Example | Preference | Item


def has_template(folder: Path) -> bool:
    """Return whether a model's tokenizer has a chat template, by its files; True if they cannot be read."""
    if any((folder / name).exists() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    try:
        return bool(json.loads(read_regular(folder / "tokenizer_config.json").decode("utf-8")).get("chat_template"))
    except (OSError, ValueError, AttributeError):
        return True


class DataFitFault(NamedTuple):
    """What does not fit, at a place of the spec. Unless ``closing``, it is a warning."""

    loc: Loc
    message: str
    hint: str
    closing: bool = True


class TokenizerUnavailable(Exception):
    """The model's tokenizer is not at hand, or cannot be read; the message names the model."""


class _Model:
    """The tokenizer of a spec's model, loaded where a row asks for it."""

    def __init__(self, folder: Callable[[], Path | None], source: str, convert: Callable[[], Path | None]) -> None:
        self._folder, self._source, self._convert = folder, source, convert
        self.rendered = False
        """Whether its template was rendered with turns of each order of roles: the library takes seconds to load."""

    @cached_property
    def folder(self) -> Path:
        path = self._folder() or self._convert()
        if path is None:
            raise TokenizerUnavailable(self._source)
        return path

    @cached_property
    def tokenizer(self) -> Any:
        try:
            from training.engines.checkpoint import tokenizer_in

            return tokenizer_in(self.folder)
        except (ImportError, OSError, ValueError) as error:
            raise TokenizerUnavailable(self._source) from error

    @cached_property
    def added_tokens(self) -> frozenset[str] | None:
        """The texts of all tokens that were added to the vocabulary, from the files: the library takes seconds to load.

        Every token of a template is one of them. None where the files do not say.
        """
        try:
            vocabulary, config = (
                json.loads(read_regular(self.folder / name).decode("utf-8"))
                for name in ("tokenizer.json", "tokenizer_config.json")
            )
            results = [added_token["content"] for added_token in (*vocabulary["added_tokens"], *_added_by(config))]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return frozenset(value for value in results if isinstance(value, str) and value)

    @cached_property
    def context(self) -> int | None:
        """The tokens it reads at most; None where its configuration does not say, or cannot be read."""
        try:
            result = json.loads(read_regular(self.folder / "config.json").decode("utf-8"))
            longest = (result.get("text_config") or result).get("max_position_embeddings")
        except (OSError, ValueError, AttributeError, RecursionError):
            return None
        return longest if isinstance(longest, int) else None

    @cached_property
    def least_context(self) -> int:
        """Its context, or what every model reads while it is still to be fetched or converted."""
        return _LEAST_CONTEXT if self._folder() is None else self.context or _LEAST_CONTEXT


def _added_by(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the tokens that a tokenizer's configuration names: those it decodes, and the special ones."""
    yield from config.get("added_tokens_decoder", {}).values()
    for name, value in config.items():
        if name.endswith("_token") and value:
            yield value if isinstance(value, dict) else {"content": value}
    for value in config.get("additional_special_tokens") or config.get("extra_special_tokens") or ():
        yield value if isinstance(value, dict) else {"content": value}


def data_faults(
    spec: SessionSpec,
    data: dict[str, bytes],
    folder: Callable[[], Path | None],
    convert: Callable[[], Path | None] = lambda: None,
) -> Iterator[DataFitFault]:
    """Yield what does not fit, of registered ``data`` by name.

    ``folder`` returns where the model lies, None where it is still to be fetched or converted; ``convert`` then makes a
    folder with its tokenizer alone, where a row needs it.

    Raises:
        Unchecked: a row is long or has turns or marks, and the model is not here.
    """
    model, reported_texts = _Model(folder, spec.model.source, convert), set[str]()
    if spec.model.kind == "instruct" and any(kind_of(stage).reads_turns for stage in spec.stages):
        path = folder()
        if path is not None and not has_template(path):
            hint = "kind: base, or a model with a template"
            yield DataFitFault(
                ("model", "kind"), "the model is declared instruct, but its tokenizer has no chat template", hint
            )
            return
        closed = False
        for fault in _template_faults(data, spec, path) if path is not None else ():
            closed |= fault.closing
            yield fault
        if closed:
            return
        model.rendered = path is not None and bool(chat_template_of(path))
    for index, stage in enumerate(spec.stages):
        trains = kind_of(stage).trains
        reference = stage.inputs.get(trains, "")
        texts = kind_of(stage).inputs.get(trains) in ("examples", "preferences")
        if texts and not kind_of(stage).plugin and reference.startswith("data."):
            form: type[Row] = Example if trains == "examples" else Preference
            rows = _rows(data[reference.removeprefix("data.")], form)
            yield from _find_training_faults(spec, index, stage, rows, model)
        elif kind_of(stage).arm is not None and kind_of(stage).reads_turns and stage.inputs.get("items") == "heldout":
            path = list(_find_heldout_faults(spec, index, stage, _rows(data["heldout"], Item), model))
            # Both arms are asked the same.
            yield from (call_fault for call_fault in path if call_fault.message not in reported_texts)
            reported_texts |= {call_fault.message for call_fault in path}


def _template_faults(data: dict[str, bytes], spec: SessionSpec, folder: Path) -> Iterator[DataFitFault]:
    """Yield what is wrong with the model's chat template for the registered rows: their first, and their longest."""
    place: Loc = ("model", "source")
    try:
        template = ChatTemplate.read(folder)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        yield DataFitFault(place, f"the tokenizer's files cannot be read: {_short(error)}", "copy them again")
        return
    talks: list[list[dict[str, str]]] = []
    for name in ("heldout", *spec.data):
        current = "items" if name == "heldout" else spec.data[name].row_kind or "items"
        form = {"items": Item, "examples": Example, "preferences": Preference}.get(current)
        rows = _rows(data[name], form) if form is not None and name in data else []
        chosen = [*_first_by_roles(rows), *rows[:1], *sorted(rows, key=lambda row: len(_text(row)))[-1:]]
        talks += [_turns(row) for row in chosen]
    if template is None or not talks:
        return
    if spec.model.template_date is not None and not template.writes_date:
        hint = "remove the line"
        yield DataFitFault(
            ("model", "template_date"), "the model's chat template writes no date that can be fixed", hint
        )
    try:
        faults = template_faults(template.with_date(spec.model.template_date), talks)
    except PluginFault as error:
        yield DataFitFault(place, error.message, "choose a model with another template")
        return
    for fault in faults:
        yield DataFitFault(place, fault.message, fault.hint, fault.closing)


def _turns(row: Row) -> list[dict[str, str]]:
    """Return the turns of a row with its answer; an item has none, and gets one."""
    turns = [*(turn.model_dump() for turn in row.before), {"role": "user", "content": row.prompt}]
    return [*turns, {"role": "assistant", "content": _responses(row)[0] or "An answer."}]


def _rows(data: bytes, form: type[Row]) -> list[Row]:
    return [form.model_validate_json(line) for line in data.splitlines() if line.strip()]


def _find_training_faults(
    spec: SessionSpec, index: int, stage: Stage, rows: list[Row], model: _Model
) -> Iterator[DataFitFault]:
    place: Loc = ("stages", index, "inputs", kind_of(stage).trains)
    most = stage.parameters.max_length
    sides = [(row, _responses(row)) for row in rows]
    long = [(row, texts) for row, texts in sides if _bytes(row, max(texts, key=len)) > most]
    marked = [row for row in rows if _MARK.search(_text(row))]
    turned = [] if model.rendered else _first_by_roles(rows)
    if long or turned:
        yield from _find_untrainable_rows(spec, index, stage, len(rows), turned, long, model)
    yield from _marks(place, marked, model)


def _find_untrainable_rows(
    spec: SessionSpec,
    index: int,
    stage: Stage,
    count: int,
    turned: Sequence[Row],
    long: Sequence[tuple[Row, tuple[str, ...]]],
    model: _Model,
) -> Iterator[DataFitFault]:
    """Yield turns that the template refuses, else rows that are cut."""
    from training.jobs.finetuning.training_texts import PromptWithResponses, style_of

    place: Loc = ("stages", index, "inputs", kind_of(stage).trains)
    most = stage.parameters.max_length
    try:
        style = style_of(model.tokenizer, stage.parameters, spec.model.kind)
    except EncodingFault as error:
        yield DataFitFault(place, str(error), "declare the model base, or take one with a template")
        return
    for row in turned:
        try:
            PromptWithResponses(style, row.prompt, _responses(row)[:1], row.before).encode_sides(model.tokenizer)
        except Exception as error:  # A template is code of the model's, and raises what it likes.
            yield DataFitFault(place, f"the model's chat template refuses {_roles(row)}: {_short(error)}", _OTHER_TURNS)
            return
    encoded = [
        PromptWithResponses(style, row.prompt, texts, row.before).encode_sides(model.tokenizer) for row, texts in long
    ]
    equal = sum(
        len(encoded_prompt.wholes) == 2 and encoded_prompt.wholes[0][:most] == encoded_prompt.wholes[1][:most]
        for encoded_prompt in encoded
    )
    wholes = [max(map(len, encoded_prompt.wholes)) for encoded_prompt in encoded]
    dropped, cut = (
        sum(len(encoded_prompt.prompt) >= most for encoded_prompt in encoded),
        sum(size > most for size in wholes),
    )
    if cut or dropped:
        context = model.context
        longest = max(wholes)
        message = f"max_length {longest} would do" if context is None or longest <= context else _shorter(context)
        loc: Loc = ("stages", index, "parameters", "max_length")
        if dropped:
            yield DataFitFault(
                loc, f"{dropped} of {count} prompts alone fill {most} tokens: nothing would be learned", message
            )
        elif equal:
            equals = f"{equal} of {count} pairs are equal once cut to {most} tokens: nothing would be learned from them"
            yield DataFitFault(loc, equals, message)
        else:
            yield DataFitFault(
                loc, f"{cut} of {count} rows are longer than {most} tokens and lose their end", message, False
            )


_OTHER_TURNS = "leave the system's turn out, or choose a model whose template has it"


def _find_heldout_faults(
    spec: SessionSpec, index: int, stage: Stage, rows: list[Row], model: _Model
) -> Iterator[DataFitFault]:
    """Yield held-out items that the model cannot read, or not answer within its context."""
    items = [row for row in rows if isinstance(row, Item)]
    turned = [] if model.rendered else _first_by_roles(rows)
    new = stage.parameters.max_new_tokens
    marked = [row for row in rows if _MARK.search(_text(row))]
    long = [item for item in items if _bytes(item, "") + new > model.least_context]
    place: Loc = ("stages", index, "inputs", "items")
    if turned or long:
        yield from _unread(spec, stage, place, items, turned, long, model)
    yield from _marks(place, marked, model)


def _unread(
    spec: SessionSpec,
    stage: Stage,
    place: Loc,
    items: list[Item],
    turned: Sequence[Row],
    long: list[Item],
    model: _Model,
) -> Iterator[DataFitFault]:
    """Yield turns that the template refuses, else items that leave no room for an answer."""
    tokenizer, form, new = model.tokenizer, form_of(spec.model.kind), stage.parameters.max_new_tokens
    try:
        for item in (row for row in turned if isinstance(row, Item)):
            item_ids(tokenizer, item, stage.parameters, form)
    except Exception as error:
        yield DataFitFault(place, f"the model cannot be asked: {_short(error)}", _OTHER_TURNS)
        return
    if (context := model.context) is not None:
        sizes = [len(item_ids(tokenizer, item, stage.parameters, form)) for item in long]
        over = [size for size in sizes if size + new > context]
        if over:
            message = f"{len(over)} of {len(items)} items take up to {max(over)} tokens and {new} to answer"
            yield DataFitFault(place, f"{message}, the model's context has {context}", _shorter(context))


def _marks(place: Loc, rows: Sequence[Row], model: _Model) -> Iterator[DataFitFault]:
    """Warn of rows whose text holds a token of the template: the model reads it as the end or beginning of a turn."""
    if rows and model.added_tokens is not None:
        rows = [row for row in rows if any(token in _text(row) for token in model.added_tokens)]
    if not rows:
        return
    reserved = template_tokens(model.tokenizer)
    named = {token for token in model.tokenizer.convert_ids_to_tokens(sorted(reserved)) if isinstance(token, str)}
    texts = [next((token for token in sorted(named) if token in _text(row)), "") for row in rows]
    if any(texts):
        count, first = sum(map(bool, texts)), next(filter(None, texts))
        message = f"{count} rows hold tokens of the chat template, such as {first}, which the model reads as such"
        yield DataFitFault(place, message, "remove them unless they are intended", False)


def _shorter(context: int) -> str:
    return f"shorten them: the model reads {context} tokens"


def _responses(row: Row) -> tuple[str, ...]:
    if isinstance(row, Preference):
        return (row.chosen, row.rejected)
    return (row.completion,) if isinstance(row, Example) else ("",)


def _text(row: Row) -> str:
    return "\n".join([*(turn.content for turn in row.before), row.prompt, *_responses(row)])


def _bytes(row: Row, text: str) -> int:
    turns = [*(turn.content for turn in row.before), row.prompt, text]
    return sum(len(turn.encode()) + FRAME for turn in turns)


def _first_by_roles(rows: Sequence[Row]) -> list[Row]:
    """Return the first row of each order of roles other than one turn of the user."""
    question_lines: dict[tuple[str, ...], Row] = {}
    for row in rows:
        if row.before:
            question_lines.setdefault(tuple(turn.role for turn in row.before), row)
    return list(question_lines.values())


def _roles(row: Row) -> str:
    return f"turns of {', '.join([*(turn.role for turn in row.before), 'user', 'assistant'])}"


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
