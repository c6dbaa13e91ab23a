"""Fixes the date that a chat template writes: the registered one stands where the template would read the clock."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

from training.rules.tokenizer_files import CONFIG, TEMPLATE, read_object

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
        path.write_text(with_date(path.read_text(encoding="utf-8"), day), encoding="utf-8")
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
