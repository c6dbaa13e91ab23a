"""The Jinja templates of reports and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

FOLDER = Path(__file__).parent / "templates"


def template(name: str, filters: Mapping[str, Callable[..., str]], **settings: Any) -> Template:
    """Return a compiled template; compiling takes longer than rendering, so callers keep it."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **settings
    )
    environment.filters |= filters
    return environment.get_template(name)
