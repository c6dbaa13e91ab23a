"""Plays the model of an agent program over the vendor's API, and notes what each answer was given to read."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from release.record_transcripts.scenarios import HELPER_TASK, SUMMARY, Answer, Scenario, scripted_texts
from testing.fixtures.loopback_api import OPENAI, ReceivedRequest, Step
from testing.fixtures.scripted_builder import MODEL, Call, Reply, as_step, items_of

ASKS_FOR_A_SUMMARY = ("create a detailed summary", "CONTEXT CHECKPOINT COMPACTION")
SHELLS = {"Bash": "command", "exec_command": "cmd", "shell_command": "command", "shell": "command"}
"""The tools that run a command, and what they call it."""
HELPERS = ("Agent", "Task", "spawn_agent")
WAITS = {"wait_agent": "targets", "wait": "ids"}


class PlayedModel:
    """Answers one scenario: the first answers of the main model and of its helper are next."""

    def __init__(self, vendor: str, scenario: Scenario) -> None:
        """Take the vendor whose API is spoken."""
        self._vendor = vendor
        self.answers = list(scenario.answers)
        self.helpers = list(scenario.helpers)
        self.requests: dict[str, list[str]] = {}
        """The scripted words that each answer of the script was given to read, by the id of its message."""
        self.faults: list[str] = []
        self._number = 0

    def step(self, request: ReceivedRequest) -> Step:
        """Answer one request."""
        self._number += 1
        body = request.value()
        statement = self._answer_text(body)
        numbered = tuple(call._replace(id=f"toolu_{self._number}_{n}") for n, call in enumerate(statement.calls))
        statement = replace(statement, calls=numbered)
        items = items_of(statement, self._number, body) if self._vendor == OPENAI else []
        for item in items:
            for tool in body.get("tools") or ():
                if tool.get("type") == "namespace" and item.get("name") in _names(tool):
                    item["namespace"] = tool["name"]
        step = as_step(self._vendor, statement, items)
        # Answers of a real vendor have an id of their own, and name the model that was asked for.
        sent = step.body.replace(b'"msg_1"', f'"msg_{self._number}"'.encode())
        return replace(step, body=sent.replace(MODEL.encode(), str(body.get("model")).encode()))

    def _answer_text(self, body: dict[str, Any]) -> Reply:
        texts = _user_texts(body)
        if texts and any(words in texts[-1] for words in ASKS_FOR_A_SUMMARY):
            return Reply(f"<summary>{SUMMARY}</summary>")
        names = _names(body)
        if not names:
            return Reply("ok")
        script = self.helpers if any(HELPER_TASK in text for text in texts) else self.answers
        if script and script[0].waits and _helper_is_back(body):
            script.pop(0)
        if not script:
            self.faults.append("a request after the end of the script")
            return Reply("The script is over.")
        self.requests[f"msg_{self._number}"] = words_sent(body)
        return self._call_tools(script.pop(0), names, body)

    def _call_tools(self, answer: Answer, names: list[str], body: dict[str, Any]) -> Reply:
        """Return an answer with calls of the tools that this version of the program offers."""
        calls: list[Call] = []
        for command in answer.commands:
            tool = self._tool_names(SHELLS, names)
            text: Any = ["bash", "-lc", command] if tool == "shell" else command
            more = {"description": "Run a command"} if tool == "Bash" else {}
            calls.append(Call(tool, {SHELLS.get(tool, ""): text} | more))
        if answer.helper:
            tool = self._tool_names(HELPERS, names)
            of_claude = {"description": "Count loaves", "prompt": answer.helper, "subagent_type": "general-purpose"}
            calls.append(Call(tool, {"message": answer.helper} if tool == "spawn_agent" else of_claude))
        started = re.search(r'agent_id[\\": ]+([0-9a-f-]{36})', json.dumps(body))
        if answer.waits and started:
            tool = self._tool_names(WAITS, names)
            calls.append(Call(tool, {WAITS.get(tool, ""): [started[1]]}))
        return Reply(answer.text, tuple(calls), thinking=answer.thinking, usage=(answer.tokens, 50, 200, 100))

    def _tool_names(self, wanted: Any, names: list[str]) -> str:
        """Return the tool of some that is offered."""
        tool = next((name for name in wanted if name in names), "")
        if not tool:
            self.faults.append(f"none of {', '.join(wanted)} is offered: {', '.join(names)}")
        return tool


def _names(body: dict[str, Any]) -> list[str]:
    """Return the names of tools, those within a namespace too."""
    tools = body.get("tools") or ()
    return [str(tool["name"]) for tool in tools if "name" in tool] + [n for tool in tools for n in _names(tool)]


def _user_texts(body: dict[str, Any]) -> list[str]:
    """Return every text of the user's messages, oldest first."""
    texts: list[str] = []
    for message in body.get("messages") or body.get("input") or ():
        if message.get("role") == "user":
            content = message["content"]
            texts += [content] if isinstance(content, str) else [str(block.get("text", "")) for block in content]
    return texts


def _helper_is_back(body: dict[str, Any]) -> bool:
    """Return whether the helper's last answer stands in a request."""
    return "Twelve loaves." in json.dumps(body.get("messages") or body.get("input"))


def words_sent(body: dict[str, Any]) -> list[str]:
    """Return what a request of Claude Code repeats of the script, in order: texts, calls, results, a summary."""
    words: list[str] = []
    scripted = scripted_texts()
    for message in body.get("messages") or ():
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            text = str(block.get("text") or block.get("thinking") or "").strip()
            if text in scripted:
                words.append(text)
            elif SUMMARY in text:
                words.append("summary")
            elif block["type"] == "tool_use":
                words.append(block["id"])
            elif block["type"] == "tool_result":
                words.append(f"result of {block['tool_use_id']}")
    return words
