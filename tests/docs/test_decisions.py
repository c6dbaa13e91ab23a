"""Every decision has a status and its sources, and every link to a decision names the right number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from specs.system.home import HOME

TEXTS = {
    int(path.name[:4]): path.read_text(encoding="utf-8") for path in sorted((HOME / "docs" / "decisions").iterdir())
}
_HEAD = re.compile(r"# (\d+)\. .+\n\nStatus: (?:accepted|superseded by \[decision \d+\]\([\w.-]+\))\.\n\nSources: \S")
_LINK = re.compile(r"\[decision (\d+)\]\((?:\.\./decisions/)?0*(\d+)-[\w-]+\.md\)", re.IGNORECASE)


def problems_of(texts: Mapping[int, str]) -> Iterator[str]:
    """Yield the decisions whose first lines are malformed."""
    for number, text in texts.items():
        head = _HEAD.match(text)
        if head is None or int(head[1]) != number:
            yield f"{number}: expected '# {number}. TITLE', a status and sources"


def wrong_links(text: str) -> list[str]:
    """Return the links of a page whose label names another decision than they lead to."""
    return [f"decision {label} leads to {target}" for label, target in _LINK.findall(text) if label != target]


def test_every_decision_has_a_status_and_its_sources() -> None:
    assert list(problems_of(TEXTS)) == []
    good = "# 1. Title\n\nStatus: accepted.\n\nSources: a paper.\n\nText.\n"
    assert list(problems_of({1: good})) == []
    assert list(problems_of({2: good})) and list(problems_of({1: good.replace("Sources: ", "")}))
    assert list(problems_of({1: good.replace("accepted", "perhaps")}))


def test_a_link_to_a_decision_leads_to_the_one_it_names() -> None:
    pages = [HOME / "README.md", *(HOME / "docs").rglob("*.md")]
    assert {str(page): wrong_links(page.read_text(encoding="utf-8")) for page in pages} == {
        str(page): [] for page in pages
    }
    assert wrong_links("[decision 1](0002-b.md)") == ["decision 1 leads to 2"]
