"""Writes the transcripts of the composer demo: short sessions of a coding agent that no one had, in Claude Code's form.

They show what real ones have: results behind their calls, parallel calls, a compaction, a subagent, and records
that are not part of the conversation. The model that they name is made up, and so is every text.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

MODEL = "invented-agent-1"
_CHORES = (
    ("greet.py", "greet", "prints the name twice", "the name is printed once"),
    ("totals.py", "total", "forgets the last line", "the last line is added too"),
    ("dates.py", "parse", "takes months for days", "days come first now"),
    ("words.py", "count", "counts empty words", "empty words are left out"),
)


class _Session:
    """A session file in the making."""

    def __init__(self, name: str, **more: Any) -> None:
        self.name, self._more = name, {"sessionId": name, "cwd": "/home/someone/project", "version": "2.1.0"} | more
        self.records: list[dict[str, Any]] = []
        self.last: str | None = None
        self._answers = 0

    def add(self, kind: str, parent: str | None = "", **more: Any) -> str:
        number = len(self.records)
        uuid = f"{self.name}-{number}"
        behind = {"parentUuid": self.last if parent == "" else parent}
        time = {"timestamp": f"2026-03-02T09:{number // 60:02d}:{number % 60:02d}.000Z"}
        self.records.append({"type": kind, "uuid": uuid} | behind | self._more | time | more)
        self.last = uuid
        return uuid

    def says(self, text: str, parent: str | None = "", **more: Any) -> str:
        return self.add("user", parent, message={"role": "user", "content": text}, **more)

    def answers(self, text: str, *calls: tuple[str, dict[str, str], str]) -> None:
        """Add an answer: a record for its text and for each call, and the results behind their calls."""
        self._answers += 1
        message = {"id": f"msg-{self.name}-{self._answers}", "role": "assistant", "model": MODEL}
        self.add("assistant", message=message | {"content": [{"type": "text", "text": text}]})
        results: list[str] = []
        for number, (tool, arguments, result) in enumerate(calls):
            call = {"type": "tool_use", "id": f"{message['id']}-{number}", "name": tool, "input": arguments}
            called = self.add("assistant", message=message | {"content": [call]})
            beside = self.add("progress", data={"type": "hook_progress"})
            block = {"type": "tool_result", "tool_use_id": call["id"], "content": result}
            results.append(self.add("user", called, message={"role": "user", "content": [block]}))
            self.last = beside
        self.last = results[0] if results else self.last

    def lines(self) -> str:
        return "".join(f"{json.dumps(record)}\n" for record in self.records)


class SessionTranscript(NamedTuple):
    """A transcript and its place below the folder."""

    path: str
    text: str


def sessions() -> list[SessionTranscript]:
    """Return the transcripts, the same every time."""
    results: list[SessionTranscript] = []
    for number, (file, function, fault, mended) in enumerate(_CHORES):
        made = _Session(f"session-{number}")
        made.records.append({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}})
        made.says(f"{function} in {file} {fault}. Please mend it.")
        test = f"test_{file}"
        made.answers(
            f"I look at {file} and its test.",
            ("Read", {"file_path": file}, f"def {function}(text):\n    return text.split()"),
            ("Read", {"file_path": test}, f"from {file[:-3]} import {function}"),
        )
        made.answers(
            "I change only that line.",
            ("Edit", {"file_path": file, "old_string": "split()", "new_string": "strip().split()"}, "edited"),
        )
        made.answers("I run the tests.", ("Bash", {"command": f"python -m pytest {test}"}, "1 passed in 0.02s"))
        if number == 2:
            made.add("system", None, subtype="compact_boundary", logicalParentUuid=made.last)
            made.says(f"{file} was changed and tested.", isCompactSummary=True, isVisibleInTranscriptOnly=True)
        made.answers(f"Done: {mended}, and the test passes.")
        made.add("system", subtype="turn_duration", durationMs=1200)
        results.append(SessionTranscript(f"{made.name}.jsonl", made.lines()))
    helper = _Session("session-0", agentId="helper", isSidechain=True)
    helper.name = "helper"
    helper.says("Find where greet is called.")
    helper.answers("I search.", ("Grep", {"pattern": "greet("}, "main.py:3: greet(name)"))
    helper.answers("It is called in main.py, line 3.")
    results.append(SessionTranscript("session-0/subagents/agent-helper.jsonl", helper.lines()))
    return results


def main(argv: Sequence[str] | None = None) -> int:
    """Write the transcripts into a folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    folder: Path = parser.parse_args(argv).out
    for session in sessions():
        path = folder / session.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(session.text, encoding="utf-8")
    print(f"{folder}: {len(sessions())} transcripts")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
