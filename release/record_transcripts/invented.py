"""Puts invented values in the place of what a recording says of its machine, its time and its program's own texts."""

from __future__ import annotations

import getpass
import json
import platform
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from release.record_transcripts.scenarios import SUMMARY

HOME = "/home/baker"
DAY = datetime(2026, 1, 5, 9, tzinfo=UTC)
LONGEST_TEXT, LONGEST_LIST, DEEPEST = 120, 3, 6
"""Limits of a recorded value: characters, items, and levels. Texts of the scenarios are shorter."""

_UUID = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-f])")
_HEX = re.compile(r"(?<![0-9A-Za-z-])(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{16,64}(?![0-9A-Za-z-])")
_TIME = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_FILE_TIME = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d-\d\d-\d\d\b")
_MEASURED = (
    (re.compile(r"duration_ms(\W+)\d+"), r"duration_ms\g<1>100"),
    (re.compile(r"Wall time: [\d.]+"), "Wall time: 0.1"),
    (re.compile(r"Chunk ID: \w+"), "Chunk ID: 000000"),
    (re.compile(r"(?<=claude-)\d+(?=[/-])"), "1000"),
)
_MEASURED_KEY = re.compile(r"(?i)(ms|duration\w*|nanos|secs|time|_at|cost\w*|pid|process_id|timestamp)$")
_NAMED_AT_RANDOM = re.compile(r'"(slug|nickname|agent_nickname|agentId)\\*": ?\\*"([\w. -]+?)\\*"')
_CREATED_AT = re.compile(r'"timestamp": ?"([^"]+)"')


class Pseudonyms:
    """Replaces the values of one recording, the same by the same."""

    def __init__(self, folder: Path, texts: list[str]) -> None:
        """Take the folder that the program ran in, and everything it wrote."""
        places = {str(folder / "home"): HOME, str(folder): "/srv/bakery"}
        self._exact = {_as_folder_name(place): _as_folder_name(instead) for place, instead in places.items()} | places
        self._exact |= {platform.release(): "6.1.0", platform.version(): "version"}
        # "root" is also the name of the first of Codex's agents, and stands in the names of its keys.
        names = {platform.node(): "bakery-1", getpass.getuser().replace("root", ""): "baker"}
        self._names = {re.compile(rf"\b{re.escape(name)}\b"): instead for name, instead in names.items() if name}
        whole = "\n".join(texts)
        for key, value in _NAMED_AT_RANDOM.findall(whole):
            self._exact.setdefault(value, f"{key.lower()[:5]}{len(self._exact):03d}")
        today = datetime.now(UTC)
        for form in ("%Y-%m-%d", "%Y/%m/%d"):
            for day in (today - timedelta(days=1), today):
                self._exact[day.strftime(form)] = DAY.strftime(form)
        times = sorted(set(_TIME.findall(whole)))
        self._times = {time: f"{DAY + timedelta(seconds=n):%Y-%m-%dT%H:%M:%S}.000Z" for n, time in enumerate(times)}
        self._ids: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Return a text with invented values."""
        text = _TIME.sub(lambda match: self._times.get(match[0], match[0]), text)
        text = _FILE_TIME.sub(f"{DAY:%Y-%m-%dT%H-%M-%S}", text)
        text = _UUID.sub(lambda match: self._id(match[0], "{:08x}-0000-4000-8000-000000000000"), text)
        text = _HEX.sub(lambda match: self._id(match[0], "{:016x}"), text)
        for pattern, instead in (*_MEASURED, *self._names.items()):
            text = pattern.sub(instead, text)
        for old, new in sorted(self._exact.items(), key=lambda pair: -len(pair[0])):
            text = text.replace(old, new)
        return text

    def _id(self, value: str, form: str) -> str:
        return self._ids.setdefault(value, self._exact.get(value) or form.format(len(self._ids) + 1))

    def value(self, value: Any, key: str = "", depth: int = 0) -> Any:
        """Return a JSON value with invented values, cut where it is long or deep."""
        if isinstance(value, str):
            return "100" if value.isdecimal() and _MEASURED_KEY.search(key) else _shorten(self.text(value))
        if isinstance(value, dict):
            if depth >= DEEPEST and value:
                return {"left out": len(value)}
            return {self.text(name): self.value(member, name, depth + 1) for name, member in value.items()}
        if isinstance(value, list):
            return [self.value(member, key, depth + 1) for member in value[:LONGEST_LIST]]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return 100 if _MEASURED_KEY.search(key) or value > 1e9 else value
        return value

    def lines(self, text: str) -> str:
        """Return the lines of a transcript with invented values."""
        records = [self.value(json.loads(line)) for line in text.splitlines()]
        return "".join(f"{json.dumps(record, ensure_ascii=False, separators=(',', ':'))}\n" for record in records)


def _as_folder_name(place: str) -> str:
    """Return a path as Claude Code names the folder of its sessions."""
    return re.sub(r"[^A-Za-z0-9]", "-", place)


def _shorten(text: str) -> str:
    """Return a text of bounded length: what a program writes in its own name is not copied."""
    if len(text) <= LONGEST_TEXT:
        return text
    first, last = LONGEST_TEXT * 5 // 8, LONGEST_TEXT // 4
    scripted = f" {SUMMARY}" if SUMMARY in text else ""
    return f"{text[:first]} [{len(text) - first - last} characters left out]{scripted} {text[-last:]}"
