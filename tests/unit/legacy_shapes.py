"""Shapes of older reviews, each with what a person reads in it. Written for these tests."""

from __future__ import annotations

from typing import Any

APPROVE = {
    "key": "Decision: GO",
    "bold key": "**Verdict:** APPROVE",
    "enum": "Verdict: approved",
    "mandated form": "## Recommendation\nScale up.\n\n## Reasoning\nIt holds.\n\n## Approval\n**Yes**\n",
    "summary line": "Summary: \u2705 Approved\n\n## Suggestions\n- Add a test.",
    "mojibake": "Summary: \u00e2\u0153\u2026 Approved",
    "table": "| Decision | GO |",
    "box": "- [x] Approve\n- [ ] Reject",
    "prose": "I read the diff. The run is approved.",
    "no changes": "Decision: approve, no further changes needed",
    "leading": "No blocking issues found. Approved.",
    "phrase": "Fixes verified. Ready for production.",
    "answer after a question": "User: should we reject this?\n\nAssistant: Approved. It holds.",
    "command line log": (
        "[2025-01-01T10:00:00] OpenAI Codex v0.45.0\n--------\nworkdir: /x\n--------\n"
        "[2025-01-01T10:00:01] User instructions:\nAnswer NO-GO or GO.\n\n[2025-01-01T10:00:02] thinking\n\n"
        "Maybe NO-GO.\n[2025-01-01T10:00:03] codex\nDecision: GO\n\nFine.\n[2025-01-01T10:00:04] tokens used: 7"
    ),
}
CONDITIONS = {
    "notes": "Summary: \u2705 Approved with minor notes",
    "guarded": "GO (guarded)",
    "safeguards": "\u26a0\ufe0f Issues Found (approve with safeguards)",
    "enum": "verdict: APPROVE_WITH_CONDITIONS",
    "once": "Approved, once the loader is fixed.",
    "yes but": "Approval: Yes, but only for the pilot.",
}
REVISE = {
    "iterate": "Decision: ITERATE",
    "modify": "Decision: MODIFY the stop sequence first.",
    "changes": "I have to request changes: the arms differ.",
    "denied, with what instead": "The gate stays closed.\n\nDecision: ITERATE",
    "issues": "Summary: \u26a0\ufe0f Issues found\n\n- The split leaks.",
}
REJECT = {
    "no-go": "Decision: NO-GO",
    "no go in prose": "For me this is a no-go.",
    "not approved": "This run is not approved.",
    "cannot": "I cannot approve this.",
    "typographic": "I don\u2019t approve this.",
    "do not proceed": "Do not proceed.",
    "withheld": "Approval withheld.",
    "emphasis": "We do **not** approve.",
    "wrapped": "After reading it all, this is not\nAPPROVED.",
    "enum": "Status: NOT_APPROVED",
    "quoted negation": 'We do "not" approve.',
    "short of": "We are stopping short of GO.",
    "gate": "Blockers remain, so the gate must remain closed. We flip to GO once they are gone.",
    "no": "## Approval **No**",
    "prompt and answer": "=== PROMPT ===\nSay APPROVED if it is fine.\n=== RESPONSE ===\nREJECT. Rows leak.",
}
UNDETERMINED = {
    "two verdicts": "Verdict: approve\n\nDecision: reject",
    "two negative verdicts": "Verdict: reject\n\nDecision: ITERATE",
    "prose against label": "Decision: GO\n\nThe second half must be rejected.",
    "options": "Option A: NO-GO\nOption B: GO",
    "one option": "Option B: GO",
    "proceed with an option": "Looking at both, please proceed with option B.",
    "go with": "Decision: Go with a lower temperature.",
    "template": "Approval: Yes/No",
    "echoed choice": "Please decide: GO / NO-GO / MODIFY.",
    "fence": "```\nVerdict: APPROVE\n```\nThat was the form.",
    "block quote": "> Verdict: APPROVE\n\nThat is what was asked for.",
    "lazy block quote": "> The form says\nVerdict: APPROVE\n\nNothing else.",
    "quotes": 'The file says "Verdict: APPROVED" at its end.',
    "comment": "<!-- Verdict: APPROVE -->\nNothing yet.",
    "struck": "~~APPROVED~~ See the next file.",
    "request": "# REVIEW REQUEST: pilot\n## Context\nApproved by all.\n\n## Summary\nAPPROVED\n## Request\nIs it a GO?",
    "question": "Can this be APPROVED?",
    "builder": "Builder: APPROVED",
    "builder section": "## Builder's summary\nDecision: GO",
    "restated": "The builder says it is APPROVED.",
    "earlier": "In the previous round this was approved.",
    "hypothetical": "I would approve once the tests pass.",
    "adjective": "The approved budget covers the rejected samples.",
    "pointer": "- See `reviews/20250101_pilot_codex.md` for the full review.",
    "opinion": "All of this looks reasonable.",
    "pending": "Approval: pending",
    "a reviewer is quoted without quotes": "Codex APPROVED the change, so I start training.",
    "an answer is passed on": "I got GO from the reviewer and am starting.",
    "approved but": "It is approved in principle, but do not run it.",
    "two negations": "There is no reason not to approve.",
    "wrong sign": "\u274c Approved",
}
TRANSPORT = {
    "empty": "",
    "blank": " \n\t\n",
    "stub": "Error: stdout is not a terminal\n",
    "python": 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nTimeoutError: 300 s',
    "python after a verdict": "Verdict: APPROVE\n\nTraceback (most recent call last):\nOSError: gone",
    "node": "TypeError: x is undefined\n    at run (/srv/review.js:12:7)\n    at main (/srv/review.js:40:2)",
    "http": "HTTP 429 Too Many Requests",
    "status": "502 Bad Gateway",
    "html": "<html><body>Service Unavailable</body></html>",
    "timeout": "Request timed out after 300 s",
    "logged": "2025-01-01 10:00:00,123 ERROR stream disconnected before completion",
    "shell": "bash: codex: command not found",
    "last line": "Summary: fine so far.\n\nA.\n\nB.\n\nC.\n\nERROR: stream disconnected",
}
INCOMPLETE = {
    "no value": "Summary of the run.\n\nDecision:",
    "empty section": "The numbers hold.\n\n## Approval\n",
    "in a sentence": "Decision: GO\n\nThe loader is sound and the",
    "dots": "Decision: GO\n\nThe loader is sound...",
    "open fence": "Decision: GO\n\n```python\nrows = 1",
    "bold": "Decision: **APPR",
    "todo": "# Review\n\n[TODO]\n",
    "truncated": "Decision: GO\n[truncated]",
    "long last line": "Decision: GO\n\n"
    + "The loader reads every row once and then compares it with the split, so the count " * 2
    + "hold",
}
SHAPES = [
    *(("verdict", "approve", name, text) for name, text in APPROVE.items()),
    *(("verdict", "approve_with_conditions", name, text) for name, text in CONDITIONS.items()),
    *(("verdict", "revise", name, text) for name, text in REVISE.items()),
    *(("verdict", "reject", name, text) for name, text in REJECT.items()),
    *(("undetermined", None, name, text) for name, text in UNDETERMINED.items()),
    *(("transport_error", None, name, text) for name, text in TRANSPORT.items()),
    *(("incomplete", None, name, text) for name, text in INCOMPLETE.items()),
]

JSON_SHAPES: list[tuple[str, Any, str, str | None]] = [
    (".json", {"verdict": "approve"}, "verdict", "approve"),
    (".json", {"approved": False, "reasoning": "Rows leak."}, "verdict", "reject"),
    (".json", {"request": "Say APPROVED.", "response": "Decision: NO-GO"}, "verdict", "reject"),
    (".json", {"prompt": "Decision: GO"}, "undetermined", None),
    (".json", {"verdict": "approve", "decision": "reject"}, "undetermined", None),
    (".json", {"author": "builder", "verdict": "approve"}, "undetermined", None),
    (".json", {"error": {"message": "quota"}, "verdict": "approve"}, "transport_error", None),
    (".json", {"status": 503, "message": "Decision: GO"}, "transport_error", None),
    (".json", {"choices": [{"finish_reason": "length", "text": "Decision: GO"}]}, "incomplete", None),
    (".json", {"choices": [{"message": {"role": "assistant", "content": "Decision: GO"}}]}, "verdict", "approve"),
    (
        ".jsonl",
        [{"role": "user", "content": "APPROVED?"}, {"role": "assistant", "content": "I reject it."}],
        "verdict",
        "reject",
    ),
    (
        ".jsonl",
        [{"role": "assistant", "content": "APPROVED"}, {"role": "reviewer", "content": "NO-GO"}],
        "verdict",
        "reject",
    ),
    (
        ".jsonl",
        [{"type": "assistant", "sessionId": "s", "message": {"role": "assistant", "content": "APPROVED"}}],
        "undetermined",
        None,
    ),
]
