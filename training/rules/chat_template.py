"""Does a chat template write every turn, open an answer, end it with a stop, and write the same tomorrow?

The template is rendered as transformers renders it, in the same sandbox, without that library, which takes seconds to
load. A text that it leaves out is neither asked nor learned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from specs.system.regular_files import read_regular
from training.rules.tokenizer_files import CONFIG, TEMPLATE, chat_template_of, read_object

_CLOCK = re.compile(r"""strftime_now\(\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*\)""")
"""A call for today's date with a format that is known: Llama 3.1, Llama 3.2, gpt-oss and others write it like this."""


def writes_date(template: str) -> bool:
    """Return whether a chat template asks for today's date in a form that can be fixed."""
    return _CLOCK.search(template) is not None


def with_date(template: str, day: date) -> str:
    """Return a chat template that writes ``day`` in the place of today."""
    return _CLOCK.sub(lambda call: json.dumps(day.strftime(call[1] or call[2] or ""), ensure_ascii=False), template)


def fix_date(folder: Path, day: date) -> None:
    """Fix the date in every chat template of a checkpoint; raises OSError or ValueError for files it cannot read."""
    path = folder / TEMPLATE
    if path.is_file():
        path.write_text(with_date(read_regular(path).decode("utf-8"), day), encoding="utf-8")
    for name in (CONFIG, "chat_template.json"):
        data = read_object(folder, name)
        templates: Any = data.get("chat_template")
        if isinstance(templates, str):
            data["chat_template"] = with_date(templates, day)
        elif isinstance(templates, list):
            for named in templates:
                named["template"] = with_date(named["template"], day)
        else:
            continue
        (folder / name).write_text(json.dumps(data, ensure_ascii=False, indent=2), encoding="utf-8")


Message = Mapping[str, str]
_SECONDS = 20.0
"""Longest time that the probes of a template may take together."""
_TIMES = (
    *(datetime(2030, 1, day, day % 24, 7 * day % 60, 11 * day % 60) for day in range(1, 32)),  # noqa: DTZ001
    *(datetime(2031, month, 1) for month in range(1, 13)),  # noqa: DTZ001 - a template has the local time
)
"""Times with every month, day of the month or week, and hour: a template may read any of them."""
_THINK = re.compile(r"<think>.*?</think>", re.S)
_PROBE = {"system": "Probe zero: be terse.", "user": "Probe {}: which colour?", "assistant": "Probe {}: blue."}


class TemplateRefusal(Exception):
    """The template refuses the turns, or cannot be rendered; the message says why."""


class TemplateFault(NamedTuple):
    """What is wrong with a template for some turns."""

    code: str
    message: str
    hint: str
    closing: bool = True


class ChatTemplate:
    """A template with the special tokens that it may write."""

    def __init__(self, text: str, tokens: Mapping[str, str], ends: frozenset[str] | None) -> None:
        self._text, self._tokens, self.ends = text, tokens, ends
        self._now = _TIMES[0]

    @cached_property
    def _renderer(self) -> Any:
        """The template, compiled once: probes render it at many times."""
        return _environment(lambda form: self._now.strftime(form)).from_string(self._text)

    @classmethod
    def read(cls, folder: Path) -> ChatTemplate | None:
        """Return the template of a checkpoint; None without one; raises OSError or ValueError for unreadable files."""
        text = chat_template_of(folder)
        if not text:
            return None
        config = read_object(folder, "special_tokens_map.json") | read_object(folder, "tokenizer_config.json")
        named = {name: _token_text(token) for name, token in config.items() if name.endswith("_token")}
        tokens = {name: text for name, text in named.items() if text}
        tokenizer = read_object(folder, "tokenizer.json")
        model: Any = tokenizer.get("model")
        vocabulary: Any = model.get("vocab") if isinstance(model, dict) else None
        words: dict[str, Any] = vocabulary if isinstance(vocabulary, dict) else {}
        texts = {id: text for text, id in words.items() if isinstance(id, int)}
        texts |= {token["id"]: token["content"] for token in tokenizer.get("added_tokens") or ()}
        ids: list[Any] = []
        for name in ("generation_config.json", "config.json"):
            named = read_object(folder, name).get("eos_token_id")
            ids += named if isinstance(named, list) else [named]
        ends = {texts[id] for id in ids if isinstance(id, int) and id in texts} | (
            {tokens["eos_token"]} if "eos_token" in tokens else set()
        )
        # Without its vocabulary nothing is known of the tokens that are named by their ids.
        return cls(text, tokens, frozenset(ends) if ends or texts else None)

    @property
    def writes_date(self) -> bool:
        """Return whether it asks for today's date in a form that :meth:`with_date` fixes."""
        return writes_date(self._text)

    def with_date(self, day: date | None) -> ChatTemplate:
        """Return the template with a fixed date in the place of today; the same one without a date."""
        return self if day is None else ChatTemplate(with_date(self._text, day), self._tokens, self.ends)

    def render(self, messages: Sequence[Message], *, opens: bool, now: datetime) -> str:
        """Return the text of turns, ready for an answer if it ``opens``; raises TemplateRefusal."""
        from jinja2 import TemplateError

        self._now = now
        try:
            turns = [dict(message) for message in messages]
            return self._renderer.render(
                messages=turns, add_generation_prompt=opens, tools=None, documents=None, **self._tokens
            )
        except (TemplateError, TypeError, ValueError, KeyError, RecursionError, ArithmeticError) as error:
            raise TemplateRefusal(" ".join(str(error).split())[:200] or type(error).__name__) from error


def _environment(clock: Callable[[str], str]) -> Any:
    """Return the sandbox of transformers (``chat_template_utils``, 5.23): a template is code from elsewhere."""
    from jinja2 import TemplateError, ext, nodes
    from jinja2.exceptions import SecurityError
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class Generation(ext.Extension):
        """Reads ``{% generation %}``, which marks what is learned, as its content."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_content"), [], [], body).set_lineno(line)

        def _content(self, caller: Callable[[], str]) -> str:
            return caller()

    class SafeNamespace(Namespace):
        """A namespace without names that begin with an underscore."""

        def __init__(*args: Any, **values: Any) -> None:
            self, rest = args[0], args[1:]
            attributes = dict(*rest, **values)
            for name in attributes:
                _require_plain(name)
            Namespace.__init__(self, attributes)

        def __setitem__(self, name: str, value: Any) -> None:
            _require_plain(name)
            Namespace.__setitem__(self, name, value)

    def _require_plain(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"a namespace cannot hold {name!r}")

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, **form: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **form)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    environment.filters["tojson"] = to_json
    known: dict[str, Any] = environment.globals  # pyright: ignore[reportAssignmentType]
    known |= {"raise_exception": raise_exception, "strftime_now": clock, "namespace": SafeNamespace}
    return environment


def template_faults(template: ChatTemplate, rows: Sequence[Sequence[Message]]) -> list[TemplateFault]:
    """Return what is wrong with a template for rows of turns that end with the assistant's, each fault once.

    Besides the rows' own texts, texts that occur nowhere else are tried for each order of roles. Raises PluginFault
    where rendering takes too long.
    """
    from specs.system.plugins import run_bounded

    return run_bounded(lambda: list(_faults(template, rows)), "the chat template", _SECONDS, "be rendered")


def _faults(template: ChatTemplate, rows: Sequence[Sequence[Message]]) -> Iterator[TemplateFault]:
    orders = {tuple(message["role"] for message in row): row for row in reversed(rows)}
    probes = [[_probe(role, place) for place, role in enumerate(roles)] for roles in sorted(orders, key=len)]
    codes: set[str] = set()
    for place, row in enumerate((*probes, *rows)):
        for fault in _faults_of(template, row, _TIMES[:: 1 if place == 0 else len(_TIMES) - 1]):
            if fault.code not in codes:
                codes.add(fault.code)
                yield fault


def _probe(role: str, place: int) -> Message:
    return {"role": role, "content": _PROBE[role].format(place)}


def changes_with_time(template: ChatTemplate) -> bool:
    """Return whether a short prompt is written otherwise at another time; raises TemplateRefusal, and PluginFault."""
    from specs.system.plugins import run_bounded

    now, turns = datetime.now(), [_probe("user", 0)]  # noqa: DTZ005 - a template has the local time
    times = [now, *_TIMES]
    texts = run_bounded(
        lambda: {template.render(turns, opens=True, now=time) for time in times}, "the chat template", _SECONDS,
        "be rendered",
    )  # fmt: skip
    return len(texts) > 1


def _faults_of(template: ChatTemplate, row: Sequence[Message], times: Sequence[datetime]) -> Iterator[TemplateFault]:
    *turns, answer = row
    now = datetime.now()  # noqa: DTZ005 - a template has the local time
    try:
        prompt, whole = (
            template.render(messages, opens=opens, now=now) for messages, opens in ((turns, True), (row, False))
        )
        closed = template.render(turns, opens=False, now=now)
        texts = {prompt, *(template.render(turns, opens=True, now=time) for time in times)}
    except TemplateRefusal as error:
        roles = ", ".join(message["role"] for message in row)
        hint = "use the template of this model's own tokenizer"
        if any(message["role"] == "system" for message in row):
            hint = "leave the system's turn out, or choose a model whose template has it"
        yield TemplateFault("refused", f"the model's chat template refuses turns of {roles}: {error}", hint)
        return
    yield from _left_out(prompt, turns)
    if len(texts) > 1:
        hint = "in a copy of the model, write a fixed date in the place of strftime_now(…)"
        if template.writes_date:
            hint = f"register a date for it: write `template_date: '{now:%Y-%m-%d}'` below `model:`"
        yield TemplateFault("date", "the chat template writes the date: prompts change from one day to the next", hint)
    if not whole.startswith(prompt):
        if not _without_spaces(whole).startswith(_without_spaces(prompt)):
            message = "what is learned does not begin with the prompt that is asked: the chat template writes the turns"
            hint = "use the template that the model was trained with"
            yield TemplateFault("prefix", f"{message} otherwise where an answer follows", hint)
        return
    yield from _answer(template, prompt, closed, whole.removeprefix(prompt), answer["content"])


def _left_out(prompt: str, turns: Sequence[Message]) -> Iterator[TemplateFault]:
    """Yield a fault for texts that the prompt lacks, or has in another order."""
    text, place = _without_spaces(prompt), 0
    for number, message in enumerate(turns):
        content = _without_spaces(message["content"])
        without = _without_spaces(_THINK.sub("", message["content"]))
        start = text.find(content, place)
        if start < 0 and without != content and (start := text.find(without, place)) >= 0:
            hint = "the model is used like that; or leave the reasoning out of earlier turns yourself"
            yield TemplateFault(
                "reasoning", "the chat template drops the reasoning of earlier turns", hint, closing=False
            )
            content = without
        if start < 0:
            role = message["role"]
            which = "the last turn" if number == len(turns) - 1 else "an earlier turn"
            missing = f"the chat template leaves out the text of the {role} ({which}), or moves it"
            hint = "use the template of this model's own tokenizer; roles are system, user and assistant"
            yield TemplateFault("left_out", missing, hint)
            return
        place = start + len(content)


def _answer(template: ChatTemplate, prompt: str, closed: str, rest: str, answer: str) -> Iterator[TemplateFault]:
    """Yield a fault where the answer is not opened, thought is closed elsewhere than learned, or nothing ends it."""
    lead, match, tail = rest.partition(answer.strip())
    if not match:
        if _without_spaces(answer) not in _without_spaces(rest):
            hint = "use the template of this model's own tokenizer"
            yield TemplateFault("answer", "the chat template leaves out the answer, or parts of it", hint)
        return
    if prompt == closed and lead.strip():
        message = f"the chat template opens no answer: the model would have to write {lead.strip()[:40]!r} itself"
        yield TemplateFault("not_opened", message, "let it write the beginning of an answer with add_generation_prompt")
    if prompt.rpartition("<think>")[1] and "</think>" not in prompt.rpartition("<think>")[2] and "</think>" in lead:
        message = "the prompt opens <think>, and what is learned closes it before the answer: it is asked otherwise"
        yield TemplateFault("think", message, "use a template that opens an answer as it writes one")
    ends = sorted(template.ends or ())
    if not ends and template.ends is not None:
        hint = "write eos_token_id to its generation_config.json, and eos_token to its tokenizer_config.json"
        yield TemplateFault("end", "the model names no end token of its tokenizer: answers would not stop", hint)
    # Cohere closes the answer, then the turn.
    elif ends and not re.match(rf"(?:\s*<\|\w+\|>)*?\s*(?:{'|'.join(map(re.escape, ends))})", tail):
        what = f"with {tail.strip()[:40]!r}" if tail.strip() else "with nothing"
        named = ", ".join(ends)
        message = f"the chat template ends an answer {what}, and the model stops at {named}: it would learn not to stop"
        yield TemplateFault("end", message, "let the template write the end token after an answer")


def _without_spaces(text: str) -> str:
    """Return a text without white space, which templates and tokenizers move."""
    return "".join(text.split())


def _token_text(token: Any) -> str:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""
