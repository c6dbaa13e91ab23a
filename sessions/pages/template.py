"""Renders reports, cards and pages in one Jinja environment.

The name of a template says what its values are escaped for: ``.html.j2``, ``.md.j2``, or nothing (``.text.j2``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context

from specs.system import markdown
from specs.system.masking import current
from specs.system.text import one_line, plain

FOLDER = Path(__file__).parent / "templates"
LINE_CHARACTERS, BLOCK_CHARACTERS = 4_000, 60_000
SAMPLE_CHARACTERS = 4_000
"""Of one prompt or answer on an exported page."""


def render(name: str, /, **values: Any) -> str:
    """Return a template with values; of ``recorded`` ones, which are shown as the trail has them, none is masked."""
    return _environment().get_template(name).render(**values)


@cache
def _environment() -> Environment:
    # Compiling takes longer than rendering: the environment keeps what it compiled.
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=lambda name: bool(name and name.endswith(".html.j2")),
        finalize=_escape_markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= _FILTERS
    return environment


@pass_context
def _escape_markdown(context: Context, value: Any) -> Any:
    return markdown.finalize(value) if context.name and context.name.endswith(".md.j2") else value


@pass_context
def _plain(context: Context, value: object) -> str:
    text = str(value) if context.get("recorded") else current().text(str(value))
    short = len(text) <= LINE_CHARACTERS and text.isascii() and text.isprintable() and "  " not in text
    return text.strip() if short else one_line(text, LINE_CHARACTERS)


@pass_context
def _block(context: Context, value: object) -> str:
    if context.get("recorded"):
        return make_plain(str(value), SAMPLE_CHARACTERS)
    return make_plain(current().text(str(value)), BLOCK_CHARACTERS)


def make_plain(text: str, limit: int) -> str:
    """Return text without what a screen obeys; most text has none, which is many times quicker to see."""
    if len(text) <= limit and text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return plain(text, limit)


def _json(value: Any) -> str:
    return plain(current().text(json.dumps(value, indent=2, ensure_ascii=False)), BLOCK_CHARACTERS)


@pass_context
def _text(context: Context, value: object, limit: int = markdown.LINE_CHARACTERS) -> str:
    return markdown.line(value, limit) if context["escaped"] else one_line(value, limit)


def _part(value: object) -> str:
    return quote(str(value), safe="")


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def _span_of_time(seconds: float) -> str:
    """Return seconds in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


_FILTERS: dict[str, Callable[..., Any]] = {
    **{"plain": _plain, "block": _block, "json": _json, "part": _part, "number": _number, "text": _text},
    **{"cell": markdown.cell, "code": markdown.code, "html": markdown.html, "written": markdown.Markup},
    "span_of_time": _span_of_time,
}
