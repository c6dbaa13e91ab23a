"""Renders the pages. Whatever is shown is masked, made plain and escaped here, in one place."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from sessions.pages import template
from sessions.pages.report.trail_page import STATES
from specs.system.errors import PeergateError

HERE = Path(__file__).parent
STATIC = {
    "page.css": (template.FOLDER / "page.css", "text/css"),
    "view.css": (HERE / "static" / "view.css", "text/css"),
    "view.js": (HERE / "static" / "view.js", "text/javascript"),
    "icon.svg": (HERE / "static" / "icon.svg", "image/svg+xml"),
}
"""The files that pages load, by name: nothing else is served as a file."""


def render(page: str, /, **values: Any) -> str:
    """Return a page; of a session, by its ``name``, with the address that its pages begin with."""
    home = f"/s/{quote(values['name'], safe='')}/" if values.get("name") else ""
    return template.render(page, **values, home=home, states=STATES)


def error_page(error: Exception, name: str = "") -> str:
    """Return a page that says what could not be shown, and why."""
    known = isinstance(error, PeergateError)
    message = error.message if known else f"{type(error).__name__}: {error}"
    return render("error.html.j2", name=name, message=message, hint=error.hint if known else "")
