"""A smallest body of every kind of entry, to be changed by the test that needs one."""

from __future__ import annotations

from functools import cache
from typing import Any

from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.trail import Trail
from specs.trail.entry import Body, EntryKind
from specs.trail.key_policy import Policy

NAME = "sha256:" + "0" * 64
AT = {"stage": "sft", "attempt": 1}
WHO = {"by": "ada", "reason": "why"}
JOB = {"key": "small.sft.1", **AT}
PHASE = {**AT, "phase": "plan", "number": 1}
ANALYSIS = {"alpha": 0.05, "minimum_effect": 0.1, "n": 10, "seeds": [1], "baseline": "a", "treatment": "b"}
PROCESS = {
    "reviewer_confined": True, "lease": {"epoch": 1, "host": "h", "pid": 1, "over": None},
    "code_state": {"digest": NAME, "version": "0", "commit": None, "branch": None, "changed": None},
}  # fmt: skip
REQUEST = {"mode": "review", "topic": "t", "tier": "low", "reviewer": "r", "by": "ada"}

BODIES: dict[EntryKind, dict[str, Any]] = {
    "open": {
        "registration": NAME, "spec": NAME, "source": NAME, "constitution": NAME, "data": {}, "analysis": ANALYSIS,
        "builder": "playbook", "reviewer": "checklist", "by": "ada", "measured_by": NAME, **PROCESS,
    },
    "model": {"source": "path:m", "kind": "base", "path": "m", "digest": NAME},
    "turn": {
        **PHASE, "answer": NAME, "request": NAME, "response": NAME, "model": "m", "stop": "end", "usage": None,
        "usd": 0.5, "usd_is_measured": True, "reservation": "turn/sft.1",
    },
    "call": {**PHASE, "turn": 1, "call_id": "c1", "tool": "read_spec", "arguments": NAME},
    "result": {**AT, "call": "call/sft.1/plan.1", "text": NAME, "is_error": False, "ends_phase": False},
    "note": {**AT, "what": "free", "text": NAME},
    "plan": {**AT, "builder": "playbook", "changes": {}, "reason": "", "escalate": False},
    "grant": {
        **AT, "schema_version": 1, "session": "small", "kind": "sft", "task": "format_instructions",
        "registration": NAME, "parameters": NAME, "inputs": {}, "model": NAME, "price_cap_usd": 0.5, "max_seconds": 60,
        "decision": NAME, "issued": 1.5, "expires": 2.5,
    },
    "launch": {**JOB, "grant": NAME, "order": NAME, "launcher": "local"},
    "exit": {**JOB, "exit": NAME, "manifest": None, "outputs": {}, "log": NAME},
    "lost": JOB,
    "challenge": {**JOB, "order": NAME, "launcher": "local"},
    "witness": {**JOB, "exit": None, "manifest": None, "rows": None, "log": None, "observed": None, "why": "gone"},
    "metrics": {**AT, "metrics": None, "why": "", "code": NAME},
    "submit": {**AT, "claims": [], "answers": {}, "sent_back": 0, "unsubmitted": ""},
    "checks": {**AT, "checks": NAME, "summary": {}},
    "packet": {**AT, "packet": NAME},
    "look": {
        **AT, "packet": NAME, "reviewer": "openai:m", "number": 1, "tool": "grep", "arguments": NAME, "most": 12000,
        "answer": NAME, "is_error": False,
    },
    "verdict": {**AT, "packet": NAME, "verdict": NAME, "error": "", "reviewer": "checklist"},
    "canary": {
        **AT, "of": NAME, "edit": "flat_curve", "packet": NAME, "verdict": NAME, "reviewer": "openai:m",
        "outcome": "rejected",
    },
    "decision": {
        **AT, "outcome": "approve", "reasons": [], "required": {}, "decision": NAME, "opens": None,
        "code": NAME,
    },
    "spend": {"what": "settle", "job": "small.sft.1", "party": "job", "stage": "sft", "usd": 0.5},
    "budget": {**AT, "at": "launch", "reasons": []},
    "human": {**AT, **WHO, "question": NAME, "answer": "stop", "opens": None},
    "override": {**WHO, "check": "c", "condition": None},
    "amendment": {
        **WHO, "outcome": "approve", "reasons": [], "registration": NAME, "spec": NAME, "source": NAME, "changes": [],
        "exploratory": False, "packet": NAME, "verdict": NAME, "overridden": False, "code": NAME,
    },
    "retraction": {**AT, **WHO, "since": 1, "judgements": [], "grants": [], "reasons": []},
    "replication_plan": {"by": "ada", "design": NAME, "measured_by": NAME, "seeds": [2, 3], "sessions": ["s-2", "s-3"]},
    "replication": {"by": "ada", "plan": NAME, "result": NAME, "heads": {"s-2": NAME}},
    "pruning": {
        "by": "ada", "leftovers": [],
        "weights": [{**AT, "output": "checkpoint", "path": "p", "digest": NAME, "bytes": 1}],
    },
    "question": {
        **REQUEST, "number": 1, "request": NAME, "read": NAME, "instructions": None, "same": NAME, "policy": None,
        "policy_code": None, "max_cost_usd": None, "timeout_s": None,
    },
    "answer": {"number": 1, "question": NAME, "by": "model", "answer": NAME, "error": ""},
    "workspace": {"what": "requested reviews, of no session"},
    "keys": {**WHO, "role": "log", "old": "0" * 64, "new": "1" * 64, "revoked": False},
    "pause": {"by": "ada"},
    "resume": {"by": "ada", **PROCESS},
    "report": {"files": {}, "entries": 1, "outcome": "approve"},
    "close": {"decision": "approve", "report": NAME},
}  # fmt: skip


def append_json(
    trail: Trail, kind: EntryKind, key: str, body: dict[str, Any], policy: Policy | None = None
) -> RecordedEntry:
    """Append a body that is plain JSON, whether or not it has the form of its kind."""
    return trail.append(_json_form(kind).model_construct(content=body), key, policy)


@cache
def _json_form(kind: EntryKind) -> type[_JsonBody]:
    return type("JsonOf" + kind, (_JsonBody,), {"KIND": kind})


class _JsonBody(Body):
    content: dict[str, Any]

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return self.content


def body_of(kind: EntryKind, **changes: Any) -> dict[str, Any]:
    """Return a body of a kind with some values changed."""
    return BODIES[kind] | changes
