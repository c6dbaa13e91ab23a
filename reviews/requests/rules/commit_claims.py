"""What commit messages and changelogs claim: files and tests that they name, and closures, next to patches and tree."""

from __future__ import annotations

import re
from collections.abc import Iterator

from reviews.requests.rules.rule_findings import place
from specs.trail.requested_review import Citation, ClaimStatus, ReadFile, ScoreRow

TREE = "tree.txt"
_NAMED = re.compile(r"`([\w./-]+\.\w+)(?:::([\w\[\]-]+))?`|\b((?:[\w-]+/)+[\w.-]+\.\w{1,5})(?:::(\w+))?")
_CLOSES = re.compile(r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)\b[ :]*(#\d+|[A-Z]+-\d+)", re.IGNORECASE)
_MENDS = re.compile(r"## [0-9a-f]+ ((?:fix|mend|correct|repair|close|resolve)\w*\b.*)", re.IGNORECASE)
"""A subject that claims to have mended something."""
_COMMIT = re.compile(r"## ([0-9a-f]{7,40}) ")


def score_commits(claims: list[ReadFile], evidence: list[ReadFile]) -> list[ScoreRow]:
    """Return a row for each file or test that a claim names, and for each closure; nothing without a tree.

    A named file has to be there at the end of the range, a named test in a patch or its file's name in the tree. A
    closure is supported only if its own commit changes a test.
    """
    tree = next((file for file in evidence if file.name == TREE), None)
    if tree is None:
        return []
    patches = {file.name.removesuffix(".patch"): file for file in evidence if file.name.endswith(".patch")}
    return [row for file in claims for row in _rows(file, tree, patches)]


def _rows(file: ReadFile, tree: ReadFile, patches: dict[str, ReadFile]) -> Iterator[ScoreRow]:
    commit = ""
    for number, line in enumerate(file.lines, 1):
        if match := _COMMIT.match(line):
            commit = match[1]
        mends = _MENDS.match(line)
        if mends and not _CLOSES.search(line):
            yield _of_closure(place(file, number), f"'{mends[1][:120]}'", commit, patches)
        for named in _NAMED.finditer(line):
            path, test = named[1] or named[3], named[2] or named[4]
            yield _of_file(place(file, number), path, test, tree, patches)
        for closes in _CLOSES.finditer(line):
            yield _of_closure(place(file, number), closes[1], commit, patches)


def _of_file(at: Citation, path: str, test: str | None, tree: ReadFile, patches: dict[str, ReadFile]) -> ScoreRow:
    lines = [number for number, name in enumerate(tree.lines, 1) if name == path or name.endswith(f"/{path}")]
    claim = f"{path}{'::' + test if test else ''} is there"
    if not lines:
        return _row(claim, at, "contradicted", (), "no file of that name is in the tree at the end of the range")
    if test is None:
        return _row(claim, at, "supported", (place(tree, lines[0]),), "the tree at the end of the range has it")
    for patch in patches.values():
        for number, line in enumerate(patch.lines, 1):
            if line.startswith("+") and re.search(rf"\b{re.escape(test)}\b", line):
                return _row(claim, at, "supported", (place(patch, number),), "a patch of the range adds it")
    return _row(claim, at, "unsupported", (), "the file is there; no patch of the range adds such a test")


def _of_closure(at: Citation, issue: str, commit: str, patches: dict[str, ReadFile]) -> ScoreRow:
    own = next((patch for name, patch in patches.items() if commit and name.startswith(commit)), None)
    claim = f"{issue} is closed" if not issue.startswith("'") else f"{issue} is done"
    for number, line in enumerate(own.lines if own else (), 1):
        if re.match(r"\+\+\+ b/.*\btests?[/_]", line) or re.match(r"\+\+\+ b/.*_test\.\w+$", line):
            why = "its commit changes a test; whether the test shows it, a rule cannot say"
            return _row(claim, at, "supported", (place(own, number),) if own else (), why)
    return _row(claim, at, "unsupported", (), "its commit changes no test that would show it")


def _row(claim: str, at: Citation, status: ClaimStatus, evidence: tuple[Citation, ...], why: str) -> ScoreRow:
    return ScoreRow(claim=claim, stated_at=at, status=status, evidence=evidence, explanation=why)
