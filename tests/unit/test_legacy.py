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

from reviews.legacy.files import read_bytes
from reviews.legacy.records import Record
from reviews.legacy.trail import read_folder
from sessions.commands.review import import_folder
from specs.errors import UserError
from tests.unit.legacy_shapes import JSON_SHAPES, SHAPES
from tests.unit.legacy_wrappers import APPROVALS as STATED
from tests.unit.legacy_wrappers import NO_APPROVAL, NO_REFUSAL, REFUSALS

TEXTS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "fixtures" / "older_reviews.jsonl").read_text(encoding="utf-8").split("\n")
    if line
]
"""Reviews of every shape, vocabulary and trick we could think of, with every outcome that a person could read."""


def read(text: str, suffix: str = ".txt") -> Record:
    return read_bytes(text.encode("utf-8", "surrogatepass"), "a" + suffix, suffix)


@pytest.mark.parametrize(
    ("status", "verdict", "text"),
    [pytest.param(*shape[:2], shape[3], id=f"{shape[1] or shape[0]}: {shape[2]}") for shape in SHAPES],
)
def test_every_shape_is_read_as_a_person_reads_it(status: str, verdict: str | None, text: str) -> None:
    found = read(text)
    assert (found.status, found.verdict) == (status, verdict), found
    assert (found.confidence == "none") == (verdict is None)


@pytest.mark.parametrize(("suffix", "value", "status", "verdict"), JSON_SHAPES)
def test_json_counts_where_the_reviewer_speaks(suffix: str, value: Any, status: str, verdict: str | None) -> None:
    text = "\n".join(map(json.dumps, value)) if suffix == ".jsonl" else json.dumps(value, indent=2)
    found = read(text, suffix)
    assert (found.status, found.verdict) == (status, verdict), found


def test_a_key_that_stands_twice_hides_nothing() -> None:
    assert read('{"verdict": "reject", "verdict": "approve"}', ".json").status == "undetermined"


def test_json_that_was_cut_is_incomplete_and_other_text_is_read_as_text() -> None:
    assert read('{"verdict": "approve", "reason', ".json").status == "incomplete"
    assert read("Decision: GO", ".json").verdict == "approve"


def test_the_evidence_is_the_line_that_decided_it() -> None:
    found = read("Summary of the run.\n\nIt holds.\n\nDecision: GO\n\nRegards.")
    assert (found.evidence, found.confidence) == ("5: Decision: GO", "high")
    assert read(
        "\n".join(map(json.dumps, [{"role": "user", "content": "?"}, {"verdict": "approve"}])), ".jsonl"
    ).evidence == ("2: Verdict: approve")


@pytest.mark.parametrize("one", [pytest.param(one, id=one["name"]) for one in TEXTS])
def test_no_text_is_read_as_what_it_does_not_say(one: dict[str, Any]) -> None:
    found = read(one["text"], one["suffix"])
    outcome = found.verdict or found.status
    assert outcome in one["accepted"], found


@pytest.mark.parametrize("wrapper", NO_APPROVAL)
def test_no_wrapped_approval_approves(wrapper: str) -> None:
    for stated in STATED:
        for said in (stated, stated[0].lower() + stated[1:]):
            found = read(wrapper.format(a=said))
            assert found.verdict not in ("approve", "approve_with_conditions"), found


@pytest.mark.parametrize("wrapper", NO_REFUSAL)
def test_no_wrapped_refusal_refuses(wrapper: str) -> None:
    for stated in REFUSALS:
        found = read(wrapper.format(a=stated))
        assert found.verdict not in ("reject", "revise"), found


def test_what_is_wrapped_there_decides_when_it_stands_alone() -> None:
    assert {read(stated).verdict for stated in STATED} == {"approve", "approve_with_conditions"}
    assert {read(stated).verdict for stated in REFUSALS} == {"reject", "revise"}


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
    for one in TEXTS:
        if one["suffix"] == ".md" and one["text"].isascii() and len(one["text"]) > 20:
            found, other = read(one["text"]), read_bytes(ENCODINGS[name](one["text"]), "a.md", ".md")
            assert (found.status, found.verdict) == (other.status, other.verdict), one["text"]


def test_an_old_apostrophe_is_no_noise() -> None:
    assert read_bytes(b"I don\x92t approve this.", "a").verdict == "reject"
    for text, verdict in (("Summary: \u2705 Approved", "approve"), ("Summary: \u26a0\ufe0f Approved with notes", None)):
        assert read_bytes(as_mojibake(text), "a").verdict == (verdict or "approve_with_conditions")


APPROVALS = ("I approve this.", "This is approved.", "We approve.", "It is ready for production.", "You can proceed.")
NEGATED = (
    "I do not approve this.",
    "This is not approved.",
    "We do not approve.",
    "It is not ready for production.",
    "You can not proceed.",
)
FILLER = st.sampled_from(["", "The loader is sound. ", "Rows were compared.\n\n", "- One item.\n- Another item.\n\n"])


@given(FILLER, st.sampled_from(list(zip(APPROVALS, NEGATED, strict=True))), FILLER, st.booleans())
def test_a_not_always_takes_an_approval_away(before: str, pair: tuple[str, str], after: str, wrapped: bool) -> None:
    for text, expected in zip(pair, (True, False), strict=True):
        said = text.replace("not ", "not\n") if wrapped else text
        assert (read(f"{before}{said} {after}").verdict == "approve") == expected


@given(st.binary(max_size=400), st.sampled_from([".md", ".txt", ".json", ".jsonl", ".log"]))
def test_any_bytes_are_a_record(raw: bytes, suffix: str) -> None:
    found = read_bytes(raw, "a", suffix)
    assert found.digest == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    assert (found.status == "verdict") == (found.verdict is not None)
    assert "\n" not in found.evidence and "\x1b" not in found.evidence


_PIECES = st.sampled_from(
    [
        "Decision: ",
        "GO",
        "NO-GO",
        "not ",
        "approve",
        "\n",
        "\n\n",
        "# ",
        "> ",
        "```\n",
        '"',
        "**",
        "|",
        "- [x] ",
        "[ ] ",
        "User: ",
        "Reviewer: ",
        "?",
        ". ",
        "\u201c",
        "<",
        "{",
        "Option A: ",
        "/",
        " or ",
        "REJECT",
        "\ud800",
        "\u2028",
        "...",
    ]
)


@given(st.lists(_PIECES, max_size=30).map("".join), st.sampled_from([".md", ".json"]))
def test_no_mixture_of_the_shapes_breaks_the_reader(text: str, suffix: str) -> None:
    found = read(text, suffix)
    assert not (found.verdict == "approve" and "NO-GO" in found.evidence)


PIECES = [
    *(
        "approve ",
        "not ",
        "# ",
        "| ",
        '"',
        "\u201c",
        "a.",
        "a/",
        "[todo",
        " at 1:1",
        "- ",
        "<",
        "  x",
        "Decision: GO\n",
        "> ",
    ),
    *(
        "- [ ] x\n",
        '{"a":',
        "[",
        "*",
        "_a_ ",
        "GO / ",
        "(",
        "1. ",
        "<b>",
        "<p>",
        "<!--",
        "<del>",
        "~~",
        "`",
        "x.py:1 ",
        "'a' ",
    ),
    *(
        "Update: ",
        "Conditions:\n- ",
        "### CRITICAL\n",
        "\u00e2\u0153\u2026",
        "Option A: GO\n",
        "before launch you must ",
        "a: ",
    ),
    *(
        "2025-01-01 ",
        "GO with a ",
        "GO for a run ",
        "decision of the ",
        "I approve the a ",
        "after reading a ",
        "if abort ",
    ),
    *(
        "the a ",
        "no a b issues ",
        "1) a? b\n",
        "'",
        "**a** ",
        "|a|b|\n",
        "| a | b |\n|---|---|\n",
        "approved for scaling ",
    ),
]


@pytest.mark.parametrize("piece", PIECES)
def test_a_hostile_file_takes_no_long_time(piece: str) -> None:
    """Each is as long as what is still read; a megabyte in all is told to be too long.

    Time that grows with the square of the length would be minutes here, on any machine.
    """
    line = (piece * 149_000)[:149_000]
    wrapped = ((piece * 3000)[:3000] + "\n") * 49
    short = ((piece * 60)[:60] + "\n") * 2400
    for text in (line, wrapped, short, line * 7):
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
