"""Older free-text reviews: what may be read as a verdict, and above all what may not."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.legacy.folder import read_folder
from reviews.legacy.reader import read_bytes
from reviews.legacy.records import Record
from sessions.commands.review.older import import_folder
from specs.system.errors import UserError

FIXTURE = Path(__file__).parents[2] / "fixtures" / "older_reviews.jsonl"
TEXTS = [json.loads(line) for line in FIXTURE.read_text(encoding="utf-8").split("\n") if line]
"""Reviews of every shape, vocabulary and trick we could think of, with every outcome that a person could read."""
UNCLEAR = {"undetermined", "incomplete", "transport_error"}


def read(text: str, suffix: str = ".md") -> Record:
    return read_bytes(text.encode("utf-8", "surrogatepass"), "a" + suffix, suffix)


def outcome(text: str, suffix: str = ".md") -> str:
    record = read(text, suffix)
    return record.verdict or record.status


READ = {
    "approve": (
        *(
            "GO",
            "GO.",
            "**GO**",
            "Decision: GO",
            "**Verdict:** APPROVE",
            "| Decision | GO |",
            "LGTM!",
            "LGTM \U0001f44d",
        ),
        *("## 4. Verdict\n\nApprove.\n", "Decision\n--------\nGO\n", "---\nverdict: approve\n---\nThe numbers hold.\n"),
        *("Summary: \u2705 Approved", "- [x] Approve\n- [ ] Request changes\n- [ ] Reject", "\U0001f680 Ship it!"),
        *(
            "Verdict: Approve, no changes required.",
            "Final verdict \u2014 APPROVED \u2705",
            "I approve.",
            "Verdict: PASS",
        ),
        *("Verdict: No issues found.", "VERDICT: NO BLOCKING ISSUES", "Verdict: ~~REJECT~~ APPROVE"),
        *("**Verdict:** The plan is **approved**, no changes needed.", "**Ready to merge?** Yes"),
        *(
            "Verdict: APPROVE. We reject the null hypothesis at p<0.01.",
            "<verdict>APPROVE</verdict>\n<reason>fine</reason>",
        ),
        *("Verdict: APPROVE\nConditions: none", "Verdict: APPROVE\n\n## Critical\nNone.", "verdict: go"),
    ),
    "approve_with_conditions": (
        *("GO, but fix the loader first.", "Conditional GO", "GO with conditions: pin the seed.", "GO (guarded)"),
        *(
            "VERDICT: APPROVE WITH NITS",
            "**Verdict: APPROVE WITH MINOR ISSUES.** All pass.",
            "LGTM, just one nit: rename `x`.",
        ),
        *("Verdict: Approve\n\nBut the migration must be fixed before merge.", "Result: PASS WITH WARNINGS"),
        *("Recommendation: merge after addressing comments 1 and 3.", "Recommendation: Accept with minor revisions"),
        *("Verdict: APPROVE\n\nConditions:\n1. Fix the seed.", "**Ready to merge?** With fixes"),
        *("Verdict: APPROVE for the pilot only; NOT approved for the full run.", "Verdict: approve after rebasing"),
    ),
    "revise": (*("**Decision:** \u274c Request changes", "Verdict: \u26a0\ufe0f needs work"),
     *("**Verdict**: Request Changes\n\nThe mismatch is open.", "Verdict: needs-attention", "State: CHANGES_REQUESTED"),
     *("Overall: needs work before this can land.", "Recommendation: Major revision", "Status: Changes requested")),
    "reject": (
        *("**Verdict:** \U0001f6d1 Reject", "Decision: \U0001f534 NO-GO"),
        *("Decision: NO-GO", "NO-GO.", "Verdict: REJECT", "**Status:** Not yet approved", "Verdict: Do not approve"),
        *(
            "My verdict is that this should not be merged in its current form.",
            "## Conclusion\n\nBLOCK. Two leaks remain.",
        ),
        *(
            "Recommendation: HOLD until the audit ends.",
            "Recommendation: Weak reject (4)",
            "Verdict: FAIL\n\nIt leaks.",
        ),
        *(
            "Overall: do not proceed.",
            "**Ready to merge?** No",
            "Verdict: No, thanks to the leak",
            "Verdict: Not approved",
        ),
        *("Previous verdict: APPROVE\n\nVerdict: REJECT", "[codex] Turn completed.\n\nVerdict: REJECT\n\n1. No power."),
    ),
    "undetermined": (*("Verdict: \u274c Approve", "Verdict: \u2705 Reject", "Verdict: \u274c"),
     *("Overall score: 8/10\n\nGood work.", "Verdict: I cannot not approve this.", "Urteil: Genehmigt"),
     *('The builder says: "Verdict: APPROVE". I have not reviewed it.', "Use this:\n\n```\nVerdict: APPROVE\n```\n"),
     *("- [x] Approve\n- [x] Request changes", "- [ ] Approve\n- [ ] Reject", "Recommendation: Borderline accept"),
     *("## Round 1\nVerdict: REVISE\n\n## Round 2\nVerdict: APPROVE", "Verdict: \u26a0\ufe0f APPROVE"),
     *("Verdict: APPROVE\n\nFindings:\n- P1: data loss (unresolved)", "Verdict: APPROVE\n\n## Critical\n- data loss"),
     *("| Reviewer | Verdict |\n|---|---|\n| A | APPROVE |\n| B | REJECT |", "Verdict: APPROVE (confidence: 35%)"),
     *("Verdict: no approval", "Verdict: not rejected", "Verdict: no reason to reject", "Verdict: Reject nothing"),
     *("Verdict: FAILED to find any problem", "Verdict: stop worrying and merge", "Verdict: hold on, APPROVE"),
     *("Verdict: GO, but the split leaks.", "Decision: Approve? No.", "Decision: !GO", "Verdict: approve is premature"),
     *("Verdict: changes requested have been made; approve", "Verdict: revise is not needed", "GO: false"),
     *("Decision: GO\n\n> Superseded by b.md", "Decision: NO-GO\n\nUpdate: now GO.", "I would not reject this."),
     *("Verdict: GO, provided that the", "Verdict: APPROVE\n\nTraceback (most recent call last):", "Verdict: none")),
}  # fmt: skip


@pytest.mark.parametrize("expected", READ)
def test_texts_are_read_as_a_person_reads_them(expected: str) -> None:
    assert {text: outcome(text) for text in READ[expected]} == dict.fromkeys(READ[expected], expected)


def test_no_text_of_the_fixture_is_read_as_what_it_does_not_say() -> None:
    misread: list[tuple[str, str]] = []
    certain = decided = 0
    for row in TEXTS:
        verdict = read(row["text"], row["suffix"]).verdict
        if verdict is not None and verdict not in row["accepted"]:
            misread.append((row["name"], verdict))
        if not UNCLEAR & set(row["accepted"]):
            certain, decided = certain + 1, decided + (verdict is not None)
    assert misread == []
    assert len(TEXTS) > 1400 and 2 * decided > certain


CHAT: dict[str, Any] = {"finish_reason": "stop", "message": {"role": "assistant", "content": "Decision: NO-GO."}}
SPOKEN = {"type": "output_text", "text": "Verdict: APPROVE"}
OUTPUT: dict[str, Any] = {"type": "message", "role": "assistant", "content": [SPOKEN]}
FINDING = {"title": "[P3] nit", "body": "x", "priority": 3}
STRUCTURED: list[tuple[Any, str]] = [
    ({"verdict": "needs-attention", "findings": [{"severity": "low", "recommendation": "approve"}]}, "revise"),
    ({"verdict": "approve", "summary": "No material finding.", "findings": [], "next_steps": []}, "approve"),
    ({"verdict": "approve", "findings": [{"severity": "critical", "title": "x"}]}, "undetermined"),
    ({"overall_correctness": "patch is correct", "findings": [FINDING], "overall_confidence_score": 0.9}, "approve"),
    ({"overall_correctness": "patch is correct", "findings": [FINDING | {"priority": 0}]}, "undetermined"),
    ({"overall_correctness": "patch is incorrect", "findings": [], "overall_explanation": "Wrong sign."}, "reject"),
    ({"overall_correctness": "patch is mostly correct"}, "undetermined"),
    ({"user": "x", "state": "APPROVED", "body": "Looks good"}, "approve"),
    ({"review": {"state": "changes_requested", "body": "Add tests"}}, "revise"),
    ([{"state": "COMMENTED"}, {"state": "APPROVED"}], "undetermined"),
    ({"state": "DISMISSED"}, "undetermined"),
    ({"id": "c", "choices": [CHAT]}, "reject"),
    ({"choices": [CHAT | {"finish_reason": "length"}]}, "incomplete"),
    ({"status": "completed", "output": [{"type": "reasoning", "summary": ["Verdict: REJECT"]}, OUTPUT]}, "approve"),
    ({"status": "incomplete", "output": [OUTPUT]}, "incomplete"),
    (
        {"role": "assistant", "content": [{"type": "text", "text": "Verdict: REJECT"}], "stop_reason": "end_turn"},
        "reject",
    ),
    ({"type": "result", "is_error": False, "result": "Verdict: REJECT\n\nNo baseline."}, "reject"),
    ({"type": "result", "is_error": True, "result": "Verdict: APPROVE"}, "transport_error"),
    ({"approved": False, "blocking_issues": ["leak"]}, "reject"),
    ({"approved": True, "blocking_issues": ["leak"]}, "undetermined"),
    ({"approved": True, "blocking_issues": [], "comments": ""}, "approve"),
    ({"approved": True, "conditions": ["pin the seed"]}, "approve_with_conditions"),
    ({"decision": None, "comments": "I approve this."}, "undetermined"),
    ({"verdict": "approve", "superseded_by": "v2.json"}, "undetermined"),
    ({"messages": [{"role": "user", "content": "Verdict: APPROVE"}]}, "undetermined"),
]


@pytest.mark.parametrize(("value", "expected"), STRUCTURED)
def test_json_is_read_by_field(value: Any, expected: str) -> None:
    assert outcome(json.dumps(value), ".json") == expected


def test_events_count_where_the_agent_answers() -> None:
    def event(kind: str, text: str) -> str:
        return json.dumps({"type": "item.completed", "item": {"type": kind, "text": text}})

    answer = event("agent_message", json.dumps({"verdict": "needs-attention"}))
    others = [json.dumps({"type": "thread.started"}), event("reasoning", "Verdict: APPROVE")]
    others.append(event("command_execution", "Verdict: GO"))
    assert outcome("\n".join([*others, answer]), ".jsonl") == "revise"
    assert outcome("\n".join(others), ".jsonl") == "undetermined", "the negative control"


def test_a_key_that_appears_twice_hides_nothing_and_cut_json_is_incomplete() -> None:
    assert outcome('{"verdict": "approve", "verdict": "reject"}', ".json") == "undetermined"
    assert outcome('{"verdict": "approve", "notes": "and th', ".json") == "incomplete"
    assert outcome("{GO} is what I would like to say, but no.", ".txt") == "undetermined"


def test_the_evidence_is_the_line_that_decided_it() -> None:
    record = read("# Review\n\nThe rows are whole.\n\nVerdict: APPROVE\n")
    assert (record.evidence, record.verdict, record.status) == ("5: Verdict: APPROVE", "approve", "verdict")


@pytest.mark.parametrize("name", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_verdict_is_the_same_in_every_encoding(name: str) -> None:
    assert read_bytes("Verdict: APPROVE \u2013 fine.".encode(name), "a", ".txt").verdict == "approve"
    assert read_bytes(bytes(range(256)), "a", ".txt").status == "transport_error"


@given(st.binary(max_size=400), st.sampled_from([".md", ".txt", ".json", ".jsonl", ".log"]))
def test_any_bytes_are_a_record(raw: bytes, suffix: str) -> None:
    record = read_bytes(raw, "a", suffix)
    assert record.digest == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    assert (record.status == "verdict") == (record.verdict is not None)
    assert "\n" not in record.evidence and "\x1b" not in record.evidence
    json.dumps(record.as_json(), allow_nan=False)


@pytest.mark.parametrize("piece", ["<", "(", '"', "# ", "a/", "I approve the a ", "that we ", "go with some "])
def test_a_hostile_file_takes_no_long_time(piece: str) -> None:
    """Each is as long as what is still read: time that grows with the square of the length would be minutes."""
    for text in (((piece * 3000)[:3000] + "\n") * 49, ((piece * 60)[:60] + "\n") * 1200, (piece * 149_000)[:149_000]):
        began = time.process_time()
        read(text, ".json")
        assert time.process_time() - began < 20


def write_folder(folder: Path) -> Path:
    (folder / "b" / "deep").mkdir(parents=True)
    (folder / "b" / "deep" / "first.TXT").write_text("Decision: GO", encoding="utf-8")
    (folder / "a.md").write_text("Decision: NO-GO", encoding="utf-8")
    (folder / "c.log").write_text("", encoding="utf-8")
    (folder / "d.json").write_text('{"verdict": "approve", "notes": "\\u001b[2J"}', encoding="utf-8")
    (folder / "ignored.py").write_text("Decision: GO", encoding="utf-8")
    (folder / "link.md").symlink_to(folder / "a.md")
    (folder / ".hidden").mkdir()
    return folder


def test_a_folder_is_read_in_order_and_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "old")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    import_folder(folder, as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert report["schema_version"] == 1 and report["passed_over"] == [".hidden/"]
    assert [(record["source"], record["status"], record["verdict"]) for record in report["records"]] == [
        ("a.md", "verdict", "reject"),
        ("b/deep/first.TXT", "verdict", "approve"),
        ("c.log", "transport_error", None),
        ("d.json", "verdict", "approve"),
        ("link.md", "undetermined", None),
    ]
    assert all(record["imported"] and not record["opens_a_gate"] for record in report["records"])
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_table_ends_with_a_sum_and_says_that_no_gate_opens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import_folder(write_folder(tmp_path / "old"), as_json=False)
    output = capsys.readouterr().out
    assert "5 records: 2 approve, 1 reject, 1 transport_error, 1 undetermined, 3 verdict" in output
    assert "none can open a gate" in output


def test_a_name_cannot_forge_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x\nforged.md  verdict  approve\x1b[2J.md").write_text("Decision: NO-GO", encoding="utf-8")
    import_folder(tmp_path, as_json=False)
    output = capsys.readouterr().out
    assert "\x1b" not in output and not any(line.startswith("forged") for line in output.splitlines())


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_folder(tmp_path / "nowhere")
    (tmp_path / "file.md").write_text("Decision: GO", encoding="utf-8")
    with pytest.raises(UserError, match="is not a folder"):
        read_folder(tmp_path / "file.md")
