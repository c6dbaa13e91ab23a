"""Do tokenizer, chat template and generation configuration fit each other and the weights?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from specs.system.errors import PluginFault
from training.rules.chat_template import ChatTemplate, Message, TemplateRefusal, template_faults
from training.rules.packaging.bounded_json import WrongFile
from training.rules.packaging.checkpoint_folder import (
    GENERATION,
    TEMPLATE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    CheckpointFolder,
    ends_of,
)
from training.rules.packaging.flaw import Flaw, NotRun
from training.rules.weight_files import quote_name

_COPY = "copy the tokenizer's files of the base"
_SPECIAL = re.compile(r"<\|[A-Za-z0-9_]{1,40}\|>|<(?:start|end)_of_turn>")
"""How templates write special tokens."""
_CONVERSATIONS = (("user", "assistant"), ("user", "assistant", "user", "assistant"))
_NAMED = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


def tokenizer(folder: CheckpointFolder) -> Iterator[Flaw]:
    """Yield where the vocabulary does not fit the weights, or has no end; raises NotRun for another format."""
    if not folder.has(TOKENIZER):
        raise NotRun(f"{TOKENIZER} is missing: a sentencepiece model is only loaded by the reload check")
    try:
        ids = folder.token_ids
    except WrongFile as error:
        yield Flaw("tokenizer", "unreadable", error.file, error.why, _COPY)
        return
    rows = _rows(folder)
    if rows is not None and (beyond := [text for text in ids if ids[text] >= rows]):
        why = f"token {quote_name(beyond[0])} has id {ids[beyond[0]]}, vocab_size is {rows}"
        yield Flaw("tokenizer", "vocab_size", TOKENIZER, why, "resize the embeddings, or copy the base's tokenizer")
    yield from _merges(folder, ids)
    try:
        end = folder.named_token("eos_token")
    except WrongFile as error:
        # Where it is missing, that is reported as a missing file.
        if not error.missing:
            yield Flaw("tokenizer", "unreadable", error.file, error.why, _COPY)
        return
    if end is None:
        yield Flaw("tokenizer", "no_end", TOKENIZER_CONFIG, "names no eos_token: answers would not end", _COPY)
    elif end not in ids:
        yield Flaw("tokenizer", "no_end", TOKENIZER_CONFIG, f"eos_token {quote_name(end)} is not a token", _COPY)


def _merges(folder: CheckpointFolder, ids: dict[str, int]) -> Iterator[Flaw]:
    model: Any = folder.tokenizer["model"]
    arguments = model.get("merges") if isinstance(model, dict) else None
    if arguments is None:
        return
    pairs = (
        [value.split(" ") if isinstance(value, str) else value for value in arguments]
        if isinstance(arguments, list)
        else None
    )
    if pairs is None or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        yield Flaw("tokenizer", "merges", TOKENIZER, "has merges that are not pairs", _COPY)
        return
    for pair in pairs:
        if not all(isinstance(text, str) and text in ids for text in pair):
            why = f"merge {quote_name(str(pair))} is of tokens that the vocabulary lacks"
            yield Flaw("tokenizer", "merges", TOKENIZER, why, _COPY)
            return


def template(folder: CheckpointFolder, base: CheckpointFolder | None = None) -> Iterator[Flaw]:
    """Yield where the chat template is missing, does not parse, loses turns, or writes tokens that are not here."""
    from jinja2 import TemplateSyntaxError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    try:
        text = folder.template
    except WrongFile as error:
        yield Flaw("template", "unreadable", error.file, error.why, _COPY)
        return
    if not text:
        why = "is missing: users would have to guess how the model is asked"
        yield Flaw("template", "missing", TEMPLATE, why, f"{_COPY}, or write what training used")
        return
    try:
        ImmutableSandboxedEnvironment(extensions=["jinja2.ext.loopcontrols"]).parse(text)
    except (TemplateSyntaxError, RecursionError) as error:
        # `{% generation %}` is an addition of transformers.
        if "generation" not in text:
            yield Flaw("template", "syntax", TEMPLATE, f"does not parse: {quote_name(str(error))}", _COPY)
            return
    yield from _render_flaws(folder)
    yield from _begin_flaws(folder, base)
    try:
        ids = folder.token_ids
    except WrongFile as error:
        raise NotRun(f"{error}, so the template's tokens cannot be looked up") from error
    if unknown := sorted({*_SPECIAL.findall(text)} - ids.keys()):
        why = f"writes {quote_name(unknown[0])}, which is not a token of {TOKENIZER}"
        yield Flaw("template", "unknown_token", TEMPLATE, why, "use the template of this model's tokenizer")


def _render_flaws(folder: CheckpointFolder) -> Iterator[Flaw]:
    """Yield what rendering a few conversations shows: lost turns, no opened or ended answer, a date."""
    try:
        template = ChatTemplate.read(folder.path)
        faults = [] if template is None else template_faults(template, [_turns(*roles) for roles in _CONVERSATIONS])
        if template is not None and not faults:
            # A model may know no system's turn; where it does, nothing of it is lost.
            of_system = template_faults(template, [_turns("system", *_CONVERSATIONS[-1])])
            faults = [fault for fault in of_system if fault.code != "refused"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotRun(f"the template cannot be rendered: {type(error).__name__}") from error
    except PluginFault as error:
        yield Flaw("template", "endless", TEMPLATE, error.message, "use the template of this model's own tokenizer")
        return
    for fault in faults:
        if fault.closing:
            yield Flaw("template", fault.code, TEMPLATE, fault.message, fault.hint)


def _begin_flaws(folder: CheckpointFolder, base: CheckpointFolder | None) -> Iterator[Flaw]:
    """Yield a flaw for a text that begins with its first token twice, unless the base writes it twice too.

    Llama 3, Gemma, Mistral and others are published with a template that writes the token and a tokenizer that puts it
    before a text; rendering and tokenizing in one call gives it once. So without a base only what no call can avoid is
    a fault, and a token that opens turns, because no model is published with that.
    """
    try:
        begin = _begin_of(folder)
        of_base = None if base is None else _begin_of(base)
    except (WrongFile, TemplateRefusal, OSError, ValueError, KeyError, TypeError, RecursionError):
        return  # Another rule reports what cannot be read or rendered.
    if begin is None or begin == of_base:
        return
    token = quote_name(begin.token)
    if begin.by_template > 1:
        why, fix = f"writes {token} {begin.by_template} times at the beginning", "let the template write it once"
        yield Flaw("template", "begin_twice", TEMPLATE, why, fix)
    if begin.by_tokenizer > 1:
        why, fix = f"puts {token} {begin.by_tokenizer} times before a text", "copy the tokenizer's files of the base"
        yield Flaw("template", "begin_twice", TOKENIZER, why, fix)
    if begin.by_template == begin.by_tokenizer == 1 and (begin.opens_turns or base is not None):
        why = f"writes {token} first, and the tokenizer puts it before every text: a rendered prompt that is tokenized "
        yield Flaw("template", "begin_twice", TEMPLATE, f"{why}begins with it twice", "let one of them write it")


class _Begin(NamedTuple):
    """The token with which a text begins, and how often template and tokenizer write it there."""

    token: str
    by_template: int
    by_tokenizer: int
    opens_turns: bool
    """Whether the template writes it before an answer too."""


def _begin_of(folder: CheckpointFolder) -> _Begin | None:
    """Return how a text begins; None without a first token; raises what reading and rendering raise."""
    template, opening = ChatTemplate.read(folder.path), folder.opening_tokens
    token = opening[0] if opening else folder.named_token("bos_token")
    if not token or template is None:
        return None
    now = datetime.now()  # noqa: DTZ005 - the local time
    prompt, closed = (template.render(_turns("user"), opens=opens, now=now).lstrip() for opens in (True, False))
    opens_turns = prompt.count(token) > closed.count(token)
    by_template = (len(prompt) - len(_without_prefixes(prompt, token))) // len(token)
    return _Begin(token, by_template, opening.count(token), opens_turns)


def _without_prefixes(text: str, prefix: str) -> str:
    while text.startswith(prefix):
        text = text.removeprefix(prefix)
    return text


def _turns(*roles: str) -> list[Message]:
    return [{"role": role, "content": f"Turn {place} of the {role}."} for place, role in enumerate(roles)]


def generation(folder: CheckpointFolder) -> Iterator[Flaw]:
    """Yield where generation would not end at the tokenizer's end token, or names tokens beyond the vocabulary."""
    try:
        matching_generation = folder.generation
    except WrongFile as error:
        if error.missing:
            raise NotRun(f"{GENERATION} is missing (see structure)") from error
        yield Flaw("generation", "unreadable", GENERATION, error.why, "copy that of the base")
        return
    rows = _rows(folder)
    for name in _NAMED:
        arguments: Any = matching_generation.get(name)
        for value in arguments if isinstance(arguments, list) else [arguments]:
            fits = value is None or (isinstance(value, int) and 0 <= value < (rows or 2**31))
            if not fits:
                why = f"{name} {quote_name(str(value))} is not a token: vocab_size is {rows}"
                yield Flaw("generation", "vocab_size", GENERATION, why, "copy that of the base")
                return
    try:
        end, ids = folder.named_token("eos_token"), folder.token_ids
        stops = ends_of(matching_generation) or ends_of(folder.config)
    except WrongFile as error:
        raise NotRun(f"{error}, so the end tokens cannot be compared") from error
    if end in ids and ids[end] not in stops:
        named = ", ".join(map(str, sorted(stops))) or "none"
        why = f"stops at {named}, the tokenizer's end {quote_name(end)} is {ids[end]}: answers run on"
        yield Flaw("generation", "end_token", GENERATION, why, f"write eos_token_id: {ids[end]}")


def _rows(folder: CheckpointFolder) -> int | None:
    try:
        vocab_size = folder.config.get("vocab_size")
    except WrongFile:
        return None
    return vocab_size if isinstance(vocab_size, int) and not isinstance(vocab_size, bool) else None
