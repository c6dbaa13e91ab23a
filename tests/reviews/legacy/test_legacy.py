"""Older free-text reviews: what may be read as a verdict, and above all what may not."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.legacy.folder import read_folder
from reviews.legacy.reader import read_bytes
from reviews.legacy.records import Record
from sessions.commands.review.older import import_folder
from specs.errors import UserError

FIXTURE = Path(__file__).parents[2] / "fixtures" / "older_reviews.jsonl"
TEXTS = [json.loads(line) for line in FIXTURE.read_text(encoding="utf-8").split("\n") if line]
"""Reviews of every shape, vocabulary and trick we could think of, with every outcome that a person could read."""
VERDICTS = ("approve", "approve_with_conditions", "revise", "reject")


def read(text: str, suffix: str = ".txt") -> Record:
    return read_bytes(text.encode("utf-8", "surrogatepass"), "a" + suffix, suffix)


def outcome(text: str, suffix: str = ".txt") -> str:
    found = read(text, suffix)
    return found.verdict or found.status


READ = {
    "approve": (
        "GO",
        "GO.",
        "**GO**",
        "## GO",
        "GO - the numbers hold.",
        "**GO** for the scale run.",
        "GO. I checked the rows; everything matches the plan.",
        "Decision: GO",
        "Verdict: go",
        "**Verdict:** APPROVE",
        "**Verdict** APPROVED",
        "GO/NO-GO: GO",
        "## 4. Verdict\n\nApprove.\n\n## 5. Notes\n\nThe plots are nice.\n",
        "## Recommendation\nScale up.\n\n## Reasoning\nIt holds.\n\n## Approval\n**Yes**\n",
        "Decision\n--------\nGO\n",
        "---\nverdict: approve\nreviewer: x\n---\nThe numbers hold.\n",
        "Summary: \u2705 Approved\n\n## Suggestions\n- Add a test.",
        "Summary: \u00e2\u0153\u2026 Approved",
        "| Decision | GO |",
        "- [x] Approve\n- [ ] Reject",
        "verdict = `approve`",
        "No blocking issues found. Approved.",
        "Verdict: Approve\n\nIt does what it says. Tests cover the failure paths. I could not break it.",
        "Verdict: GO\n\n## Blocking findings\n\nNone.\n",
        "Verdict: GO\n\n### HIGH\n- `a.py:3` drops rows\n",
        "The request asked for GO / NO-GO / MODIFY.\n\nDecision: GO\n\nReasoning: all limits hold.",
    ),
    "approve_with_conditions": (
        "GO, but fix the loader first.",
        "GO but cap it at 15k rows.",
        "**GO** ... but only after the seeds are pinned.",
        "Verdict: GO \u2026 but watch the residue.",
        "GO (but see the conditions below)",
        "GO with conditions: pin the seed.",
        "GO (guarded)",
        "Conditional GO",
        "Verdict: GO (conditional on the rerun)",
        "Approved, once the loader is fixed.",
        "Approved with conditions:\n1. pin the seed",
        "verdict: APPROVE_WITH_CONDITIONS",
        "Approval: Yes, but only for the pilot.",
        "Summary: \u2705 Approved with minor notes",
        "Summary: \u00e2\u0161 \u00ef\u00b8 Approved with conditions",
        "\u26a0\ufe0f Issues Found (approve with safeguards)",
        "Decision: GO\n\n## Required before scale\n* sentinels\n",
        "Decision: GO\n\nBefore scaling you must repair the rows.",
    ),
    "revise": (
        "Decision: ITERATE",
        "MODIFY: lower the margin",
        "Decision: MODIFY \u2014 pilot first, GO after that",
        "Summary: \u26a0\ufe0f Issues found\n\n- The split leaks.",
        "Decision: ITERATE\n\n## Approval\n**No**",
    ),
    "reject": (
        "NO-GO",
        "Decision: NO-GO. The earlier verdict was based on stale rows.",
        "Decision: don\u2019t approve",
        "Decision: don\u00e2\u20ac\u2122t approve",
        "Status: NOT_APPROVED",
        "## Approval\n**No**\n",
        "NOT-\nAPPROVED",
        "=== PROMPT ===\nSay APPROVED if it is fine.\n=== RESPONSE ===\nREJECT. Rows leak.",
    ),
    "undetermined": (
        # A sentence in the first person, or about the run, is no known form.
        "I read the diff. The run is approved.",
        "After checking the rows, I approve this pilot.",
        "I have to request changes: the arms differ.",
        "This is not a GO.",
        "This run is not approved.",
        "I don\u2019t approve this.",
        "Verdict: approve\n\nDecision: reject",
        "Decision: GO\n\nThe second half must be rejected.",
        "Decision: GO\n\n## \U0001f6a8 CRITICAL\n- The split leaks.\n",
        "# Review: REJECTED\n\n**Verdict:** APPROVED\n",
        "Verdict: GO\n\nPS: I take that back, the eval used the train split.",
        "Status: approved by nobody",
        "My plan: GO on Monday.",
        "I would reject this run if it were final.",
        "Verdict: GO, but the split leaks.",
        "GO, but not yet.",
        "Option A: NO-GO\nOption B: GO",
        "Looking at both, please proceed with option B.",
        "Decision: Go with a lower temperature.",
        "GO check the logs.",
        "GO: 3, NO-GO: 2",
        "Approval: Yes/No",
        "> Superseded by 20250102_pilot.md\n\nDecision: GO\n",
        "Overall: \U0001f7e1 YELLOW LIGHT",
        "\u274c Approved",
        "\u26a0\ufe0f Approved",
        "All of this looks reasonable.",
        "Codex APPROVED the change, so I start training.",
        "To: reviewer\nFrom: builder\n\nDecision: GO\n",
        "<p>Verdict: APPROVE</p>",
        "User: should we reject this?\n\nAssistant: Approved. It holds.",
        "[2025-01-01T10:00:00] OpenAI Codex v0.45.0\n--------\n[2025-01-01T10:00:01] User instructions:\nSay GO.\n\n"
        "[2025-01-01T10:00:02] thinking\n\nMaybe NO-GO.\n[2025-01-01T10:00:03] codex\nDecision: GO\n",
        "## Option A\n\nVerdict: GO\n",
        "Decision: GO\n\n### Q1. May the split be changed?\nNo.\n",
        "Decision: GO\n\n> Condition: cap at 15k\n",
        "Decision: APPROVED (auto)",
        "LGTM if you like your test set in your training data.",
    ),
    "transport_error": (
        "",
        " \n\t\n",
        "Error: stdout is not a terminal\n",
        "Verdict: APPROVE\n\nTraceback (most recent call last):\nOSError: gone",
        "TypeError: x is undefined\n    at run (/srv/review.js:12:7)\n",
        "HTTP 429 Too Many Requests",
        "<html><body>Service Unavailable</body></html>",
        "2025-01-01 10:00:00,123 ERROR stream disconnected before completion",
        "bash: codex: command not found",
        "Summary: fine so far.\n\nA.\n\nB.\n\nC.\n\nERROR: stream disconnected",
    ),
    "incomplete": (
        "Summary of the run.\n\nDecision:",
        "The numbers hold.\n\n## Approval\n",
        "Decision: GO\n\nThe loader is sound and the",
        "Decision: GO\n\n```python\nrows = 1",
        "Decision: **APPR",
        "# Review\n\n[TODO]\n",
        "Decision: GO\n[truncated]",
    ),
}


@pytest.mark.parametrize("expected", READ)
def test_labelled_texts_are_read_as_a_person_reads_them(expected: str) -> None:
    assert {text: outcome(text) for text in READ[expected]} == dict.fromkeys(READ[expected], expected)


def test_no_text_of_the_fixture_is_read_as_what_it_does_not_say() -> None:
    found = [(one, read(one["text"], one["suffix"])) for one in TEXTS]
    assert [(one["name"], got) for one, got in found if got.verdict and got.verdict not in one["accepted"]] == []
    # It may leave open what could be read, but not much of it.
    decidable = [one for one in TEXTS if set(one["accepted"]) <= set(VERDICTS)]
    assert sum(outcome(one["text"], one["suffix"]) in VERDICTS for one in decidable) > 0.9 * len(decidable)


JSON = [
    ({"verdict": "approve"}, "approve"),
    ({"approved": False, "reasoning": "Rows leak."}, "reject"),
    ({"request": "Say APPROVED.", "response": "Decision: NO-GO"}, "reject"),
    ({"prompt": "Decision: GO"}, "undetermined"),
    ({"verdict": "approve", "decision": "reject"}, "undetermined"),
    ({"verdict": "approve", "ruling": "reject"}, "undetermined"),
    ({"verdict": "approve", "superseded_by": "b.json"}, "undetermined"),
    ({"verdict": "approve", "blockers": ["rows leak"]}, "undetermined"),
    ({"verdict": "approve", "conditions": ["pin the seed"]}, "approve_with_conditions"),
    ({"verdict": "approve", "anything_else": {"a": 1}}, "undetermined"),
    ({"author": "builder", "verdict": "approve"}, "undetermined"),
    ({"error": {"message": "quota"}, "verdict": "approve"}, "transport_error"),
    ({"status": 503, "message": "Decision: GO"}, "transport_error"),
    ({"choices": [{"finish_reason": "length", "text": "Decision: GO"}]}, "incomplete"),
    ({"choices": [{"message": {"role": "assistant", "content": "Decision: GO"}}]}, "approve"),
    ([{"role": "user", "content": "APPROVED?"}, {"role": "assistant", "content": "REJECT."}], "reject"),
    ([{"role": "assistant", "content": "APPROVED"}, {"role": "reviewer", "content": "NO-GO"}], "undetermined"),
    (
        [{"type": "assistant", "sessionId": "s", "message": {"role": "assistant", "content": "APPROVED"}}],
        "undetermined",
    ),
]


@pytest.mark.parametrize(("value", "expected"), JSON)
def test_json_counts_where_the_reviewer_speaks(value: Any, expected: str) -> None:
    suffix = ".jsonl" if isinstance(value, list) else ".json"
    text = "\n".join(map(json.dumps, value)) if isinstance(value, list) else json.dumps(value, indent=2)
    assert outcome(text, suffix) == expected


def test_a_key_that_appears_twice_hides_nothing_and_cut_json_is_incomplete() -> None:
    assert outcome('{"verdict": "reject", "verdict": "approve"}', ".json") == "undetermined"
    assert outcome('{"verdict": "approve", "reason', ".json") == "incomplete"
    assert outcome("Decision: GO", ".json") == "approve"


def test_the_evidence_is_the_line_that_decided_it() -> None:
    found = read("Summary of the run.\n\nIt holds.\n\nDecision: GO\n\nRegards.")
    assert (found.evidence, found.confidence) == ("5: Decision: GO", "high")
    assert read("It holds.\n\nGO.").confidence == "medium"
    assert read("Is it a GO?").confidence == "none"


STATEMENTS = (
    *("GO", "APPROVED", "LGTM", "Ship it", "SCALE", "\u2705 Approved", "Ready for production", "GO (guarded)"),
    *("Decision: GO", "Approval: Yes", "Verdict: APPROVE", "Approved with conditions"),
    *("NO-GO", "REJECTED", "Decision: NO-GO", "Approval: No", "Not approved"),
    *("ITERATE", "Verdict: REVISE", "Changes requested", "Do not proceed"),
)
QUOTED = (
    *('"{a}" is what you want to hear.', "The file says `{a}` at its end.", "> {a}\n\nThat was asked for.", "~~{a}~~"),
    *("```\n{a}\n```\n\nThat is the form.", "<!-- {a} -->\nNothing yet.", "    {a}\n\nThat is what the log says."),
    *("For example:\n{a}", "The template reads:\n\n{a}\n", "The builder wrote:\n{a}\n", "User: {a}", "Builder: {a}"),
    *("## Previous verdict\n{a}\n", "# REVIEW REQUEST: pilot\n\n{a}\n", "## Builder's summary\n\n{a}\n", "[ ] {a}"),
)
QUESTIONS = ("{a}?", "Is it {a} or not? I cannot tell.", "Should it be {a}?", "{a} / something else?", "Option A: {a}")
NEGATED = (
    *("It is not true that {a}.", "Nobody said: {a}.", "I doubt that {a}.", "I refuse to write {a}.", "Almost {a}."),
    *(
        "{a}\n\nUPDATE: no.",
        "{a}\n\nThe line above is the builder's, not mine.",
        "{a}\n\n[superseded by the next file]",
    ),
    *("{a} was the verdict of last week.", "{a} is not my verdict.", "{a} would be wrong.", "{a}, said the builder."),
)
PLANS = (
    *("If the leak is real: {a}.", "If this is {a}, we start tomorrow.", "Once the rows are clean I would say {a}."),
    *("Criteria for {a}: none met.", "Suppose {a}.", "Unless the rerun fails, {a}.", "Pretend that {a}."),
)
FILLER = st.sampled_from(
    ["", "The loader is sound.\n\n", "Rows were compared.\n\n", "- One item.\n- Another item.\n\n"]
)


def test_every_statement_decides_when_it_is_alone() -> None:
    assert [one for one in STATEMENTS if outcome(one) not in VERDICTS] == []


@given(FILLER, st.sampled_from(QUOTED + QUESTIONS + NEGATED + PLANS), st.sampled_from(STATEMENTS))
def test_a_quoted_questioned_negated_or_planned_verdict_is_none(before: str, around: str, said: str) -> None:
    assert outcome(before + around.format(a=said)) not in VERDICTS


def test_no_statement_decides_within_any_of_the_sentences_around_it() -> None:
    every = [around.format(a=said) for around in QUOTED + QUESTIONS + NEGATED + PLANS for said in STATEMENTS]
    assert [text for text in every if outcome(text) in VERDICTS] == []


def as_mojibake(text: str) -> bytes:
    """The UTF-8 of a text as it looks after it was read as Windows-1252 and saved again."""
    return "".join(bytes([one]).decode("cp1252", "ignore") or chr(one) for one in text.encode()).encode()


ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "carriage returns": lambda text: text.replace("\n", "\r\n").encode(),
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16, no mark": lambda text: text.encode("utf-16-le"),
    "UTF-16, other end first": lambda text: text.encode("utf-16-be"),
    "mojibake": as_mojibake,
    "mojibake, twice": lambda text: as_mojibake(as_mojibake(text).decode()),
    "escape sequences": lambda text: ("\x1b[1m" + text.replace("\n", "\x1b[0m\n")).encode(),
    "zero-width spaces": lambda text: text.replace("O", "O\u200b").encode(),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_verdict_is_the_same_in_every_encoding(name: str) -> None:
    for expected in ("approve", "approve_with_conditions", "revise", "reject"):
        for text in READ[expected]:
            if text.isascii() and len(text) > 20:
                assert outcome(text) == (read_bytes(ENCODINGS[name](text), "a").verdict or ""), text


def test_an_old_apostrophe_is_no_noise_and_bytes_are_no_text() -> None:
    assert read_bytes(b"Decision: don\x92t approve", "a").verdict == "reject"
    assert read_bytes(bytes(range(128, 256)) * 4, "a").status == "transport_error"


@given(st.binary(max_size=400), st.sampled_from([".md", ".txt", ".json", ".jsonl", ".log"]))
def test_any_bytes_are_a_record(raw: bytes, suffix: str) -> None:
    found = read_bytes(raw, "a", suffix)
    assert found.digest == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    assert (found.status == "verdict") == (found.verdict is not None) == (found.confidence != "none")
    assert "\n" not in found.evidence and "\x1b" not in found.evidence


_PIECES = st.sampled_from(
    [
        *("Decision: ", "GO", "NO-GO", "not ", "approve", "\n", "\n\n", "# ", "> ", "```\n", '"', "**", "|", "- [x] "),
        *("[ ] ", "User: ", "Reviewer: ", "?", ". ", "\u201c", "<", "{", "Option A: ", "/", " or ", "REJECT", "\ud800"),
        *("\u2028", "...", "1. ", "### CRITICAL\n", "Conditions:\n", "a.py:3 "),
    ]
)


@given(st.lists(_PIECES, max_size=30).map("".join), st.sampled_from([".md", ".json"]))
def test_no_mixture_of_the_shapes_breaks_the_reader(text: str, suffix: str) -> None:
    found = read(text, suffix)
    assert not (found.verdict == "approve" and "NO-GO" in found.evidence)
    json.dumps(found.as_json(), allow_nan=False)


@pytest.mark.parametrize("piece", ["<", "(", '"', "# ", "a/", "I approve the a "])
def test_a_hostile_file_takes_no_long_time(piece: str) -> None:
    """Each is as long as what is still read: time that grows with the square of the length would be minutes."""
    for text in (((piece * 3000)[:3000] + "\n") * 49, ((piece * 60)[:60] + "\n") * 1200, (piece * 149_000)[:149_000]):
        begun = time.process_time()
        read(text, ".json")
        assert time.process_time() - begun < 20


def write_folder(folder: Path) -> Path:
    (folder / "b" / "deep").mkdir(parents=True)
    (folder / "b" / "deep" / "one.TXT").write_text("Decision: GO", encoding="utf-8")
    (folder / "a.md").write_text("Decision: NO-GO", encoding="utf-8")
    (folder / "c.log").write_text("Error: stdout is not a terminal\n", encoding="utf-8")
    (folder / "d.json").write_text('{"verdict": "approve", "notes": "\\u001b[2J"}', encoding="utf-8")
    (folder / "ignored.py").write_text("Decision: GO", encoding="utf-8")
    return folder


def test_a_folder_is_read_in_order_and_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "old")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    import_folder(folder, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["schema_version"] == 1
    assert [(one["source"], one["status"], one["verdict"]) for one in told["records"]] == [
        ("a.md", "verdict", "reject"),
        ("b/deep/one.TXT", "verdict", "approve"),
        ("c.log", "transport_error", None),
        ("d.json", "verdict", "approve"),
    ]
    assert {"source", "status", "verdict", "confidence", "evidence", "digest"} <= set(told["records"][0])
    assert all(one["imported"] and not one["opens_a_gate"] for one in told["records"])
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_table_ends_with_a_sum_and_says_that_no_gate_opens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import_folder(write_folder(tmp_path / "old"), as_json=False)
    said = capsys.readouterr().out
    assert "4 records: 2 approve, 1 reject, 1 transport_error, 3 verdict" in said
    assert "none can open a gate" in said


def test_a_name_cannot_forge_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x\nforged.md  verdict  approve\x1b[2J.md").write_text("Decision: NO-GO", encoding="utf-8")
    import_folder(tmp_path, as_json=False)
    said = capsys.readouterr().out
    assert "\x1b" not in said and not any(line.startswith("forged") for line in said.splitlines())


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        read_folder(tmp_path / "nowhere")
    (tmp_path / "file.md").write_text("Decision: GO", encoding="utf-8")
    with pytest.raises(UserError, match="is not a folder"):
        read_folder(tmp_path / "file.md")
