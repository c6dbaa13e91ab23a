"""Decisions are history: a superseded one says so in its first lines, and none names one that never was."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from specs.home import HOME

TEXTS = {
    int(path.name[:4]): path.read_text(encoding="utf-8") for path in sorted((HOME / "docs" / "decisions").iterdir())
}
FIRST_LINES = 8
STATUSES = ("accepted", "superseded", "accepted, superseded in part")
_LINK = re.compile(r"\[decision (\d+)\]\(0*(\d+)-[\w-]+\.md\)")
_NAMED = re.compile(r"\bdecisions? (\d+)((?:, \d+)*)(?:,? and (\d+))?\b", re.IGNORECASE)


def linked(text: str, word: str) -> set[int]:
    """Return the decisions that the first lines link to where they begin with a word."""
    lines = [line for line in text.splitlines()[:FIRST_LINES] if line.startswith(f"{word} ")]
    return {int(number) for line in lines for number, _ in _LINK.findall(line)}


def faults(texts: Mapping[int, str]) -> Iterator[str]:
    """Yield what is wrong with how decisions name each other."""
    for number, text in texts.items():
        for earlier in linked(text, "Supersedes"):
            if earlier >= number or number not in linked(texts.get(earlier, ""), "Superseded"):
                yield f"{number} supersedes {earlier}, which does not say so"
        for later in linked(text, "Superseded"):
            if number not in linked(texts.get(later, ""), "Supersedes"):
                yield f"{number} is superseded by {later}, which does not say so"
        lines = text.splitlines()
        begin = ("Supersedes ", "Superseded ")
        rest = [line for at, line in enumerate(lines) if at >= FIRST_LINES or not line.startswith(begin)]
        if re.search(r"\bsupersede[^.]*\bdecisions? \d", "\n".join(rest), re.IGNORECASE):
            yield f"{number} speaks of superseding outside of its first lines"
        for first, more, last in _NAMED.findall(text):
            gone = {int(one) for one in re.findall(r"\d+", f"{first}{more} {last}")} - texts.keys()
            yield from (f"{number} names decision {one}, which never was" for one in gone)
        yield from (f"{number} links decision {said} to {to}" for said, to in _LINK.findall(text) if said != to)


def status_of(text: str) -> str:
    """Return the status in a page's third line, or an empty string if there is none."""
    lines = text.splitlines()
    match = re.fullmatch(r"Status: ([a-z, ]+)\.", lines[2]) if len(lines) > 2 else None
    return match[1] if match else ""


def test_every_decision_has_a_status_that_agrees_with_what_supersedes_it() -> None:
    assert {number: text[:80] for number, text in TEXTS.items() if status_of(text) not in STATUSES} == {}
    by_others = {number for number, text in TEXTS.items() if linked(text, "Superseded")}
    assert {number for number, text in TEXTS.items() if status_of(text) != "accepted"} == by_others
    assert status_of("# 1. A\n\nText.\n") == ""


def test_decisions_that_are_superseded_say_so_and_none_names_one_that_never_was() -> None:
    assert sum(bool(linked(text, "Superseded")) for text in TEXTS.values()) >= 9
    assert list(faults(TEXTS)) == []


def test_each_fault_is_found() -> None:
    by, of = "Superseded in all by [decision 2](0002-b.md).", "Supersedes [decision 1](0001-a.md) in all."
    assert list(faults({1: f"# 1. A\n\n{by}\n", 2: f"# 2. B\n\n{of}\n"})) == []
    assert list(faults({1: "# 1. A\n", 2: f"# 2. B\n\n{of}\n"})) == ["2 supersedes 1, which does not say so"]
    assert list(faults({1: f"# 1. A\n\n{by}\n", 2: "# 2. B\n"})) == ["1 is superseded by 2, which does not say so"]
    assert list(faults({1: "# 1. A\n\nIt is superseded by decision 1.\n"})) == [
        "1 speaks of superseding outside of its first lines"
    ]
    late = faults({1: "# 1. A" + "\n" * 11 + by, 2: f"# 2. B\n\n{of}\n"})
    assert set(late) == {
        "2 supersedes 1, which does not say so",
        "1 speaks of superseding outside of its first lines",
    }
    named = list(faults({1: "# 1. A\n\nDecisions 1, 3 and 4, and [decision 1](0002-b.md).\n", 2: "# 2. B\n"}))
    assert sorted(named) == [
        "1 links decision 1 to 2",
        "1 names decision 3, which never was",
        "1 names decision 4, which never was",
    ]
