"""Renders the pages. Whatever is shown is masked, made plain and escaped here, in one place."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sessions.pages.report import template
from sessions.pages.report.trail_page import STATES
from sessions.run.terminal import masked_line
from specs.system.errors import PeergateError
from specs.system.masking import current
from specs.system.text import plain

HERE = Path(__file__).parent
STATIC = {
    "page.css": (template.FOLDER / "page.css", "text/css"),
    "view.css": (HERE / "static" / "view.css", "text/css"),
    "view.js": (HERE / "static" / "view.js", "text/javascript"),
    "icon.svg": (HERE / "static" / "icon.svg", "image/svg+xml"),
}
"""The files that pages load, by name: nothing else is served as a file."""
LINE, BLOCK = 4_000, 60_000


def render(page: str, /, **values: Any) -> str:
    """Return a page; of a session, by its ``name``, with the address that its pages begin with."""
    home = f"/s/{quote(values['name'], safe='')}/" if values.get("name") else ""
    return _environment().get_template(page).render(**values, home=home, states=STATES)


def error_page(error: Exception, name: str = "") -> str:
    """Return a page that says what could not be shown, and why."""
    known = isinstance(error, PeergateError)
    message = error.message if known else f"{type(error).__name__}: {error}"
    return render("error.html.j2", name=name, message=message, hint=error.hint if known else "")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader([HERE / "templates", template.FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "plain": lambda value: masked_line(value, LINE),
        "block": lambda value: plain(current().text(str(value)), BLOCK),
        "json": lambda value: plain(current().text(json.dumps(value, indent=2, ensure_ascii=False)), BLOCK),
        "part": lambda value: quote(str(value), safe=""),
        "number": _number,
        "span_of_time": span_of_time,
    }
    return environment


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def span_of_time(seconds: float) -> str:
    """Return seconds in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
