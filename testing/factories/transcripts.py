"""Writes transcripts as Claude Code does: answers in several records, forks at parallel calls, progress in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Transcript:
    """A session file in the making; each method adds records and returns the id of the last one."""

    def __init__(self, session: str = "s1") -> None:
        self.session = session
        self.records: list[dict[str, Any]] = []
        self.last: str | None = None
        self._messages = 0

    def add(self, kind: str, parent: str | None = "", **more: Any) -> str:
        """Add a record behind the last one, or behind another."""
        uuid = f"{self.session}-{len(self.records)}"
        behind = self.last if parent == "" else parent
        envelope = {"type": kind, "uuid": uuid, "parentUuid": behind, "sessionId": self.session}
        time = f"2026-02-10T10:{len(self.records) // 60:02d}:{len(self.records) % 60:02d}.000Z"
        self.records.append(envelope | {"timestamp": time, "cwd": "/home/someone/project"} | more)
        self.last = uuid
        return uuid

    def says(self, text: Any, parent: str | None = "", **more: Any) -> str:
        """Add what a person wrote."""
        return self.add("user", parent, message={"role": "user", "content": text}, **more)

    def answers(self, text: str, *tools: str, split: bool = True, **more: Any) -> str:
        """Add an answer that calls tools in parallel: a record each, and results that fork; return its message id."""
        self._messages += 1
        message = f"msg_{self.session}_{self._messages}"
        blocks = [{"type": "thinking", "thinking": "Hm.", "signature": "x"}] if split else []
        blocks += [{"type": "text", "text": text}]
        calls: list[dict[str, Any]] = [
            {"type": "tool_use", "id": f"{message}_{n}", "name": tool, "input": {"path": f"{n}.txt"}}
            for n, tool in enumerate(tools)
        ]
        if not split:
            self._answer(message, [*blocks, *calls], **more)
        for block in blocks if split else []:
            self._answer(message, [block], **more)
        results: list[str] = []
        for call in calls:
            called = self._answer(message, [call], **more) if split else self.last
            beside = self.add("progress", data={"type": "hook_progress"}, **more)
            results.append(self.result(call["id"], f"contents of {call['name']}", called, **more))
            self.last = beside
        # What comes next names one of the results; the other calls are on forks of their own.
        self.last = results[0] if results else self.last
        return message

    def _answer(self, message: str, content: list[Any], **more: Any) -> str:
        messages = {"id": message, "role": "assistant", "model": "claude-test", "content": content, "stop_reason": None}
        return self.add("assistant", message=messages, **more)

    def result(self, call: str, text: Any, parent: str | None = "", **more: Any) -> str:
        """Add what a tool returned."""
        block = {"type": "tool_result", "tool_use_id": call, "content": text}
        return self.says([block], parent, **more)

    def compacts(self, summary: str) -> str:
        """Add a compaction and its summary."""
        self.add("system", None, subtype="compact_boundary", logicalParentUuid=self.last)
        return self.says(summary, isCompactSummary=True, isVisibleInTranscriptOnly=True)

    def lines(self) -> list[str]:
        """Return the lines of the file."""
        return [json.dumps(record) for record in self.records]

    def write(self, path: Path) -> Path:
        """Write the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in self.lines()), encoding="utf-8")
        return path


def long_session(session: str = "s1") -> Transcript:
    """Return a session with everything that real ones have: forks, a compaction, a command, a rewind."""
    made = Transcript(session)
    made.records.append({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}})
    made.says("<command-name>/clear</command-name>")
    made.says("Read both files.")
    made.answers("I read them.", "Read", "Read")
    fork_point = made.last
    made.says("Now change one.")
    made.answers("Changed.", "Edit", split=False)
    made.says("No, the other one.", fork_point)
    made.answers("Changed the other one.", "Edit", "Bash", "Bash")
    made.add("system", subtype="turn_duration", durationMs=3)
    made.compacts("Two files were read, one was changed.")
    made.answers("I go on.", "Bash")
    made.says("Thanks.")
    made.answers("Done.")
    return made
