"""README and docs: every link and anchor leads somewhere, every command, page and source file that is named exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.test_layout import PACKAGES, command_names

HOME = Path(__file__).parents[2]
MOST_WORDS = 28_350
"""180 of them for authors and referees of a paper (how-to/attach-to-a-paper.md), 230 for `cai_demo` and its result, 400
for several answers to an item, a second split, early stopping and learning curves."""
_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def pages(home: Path) -> list[Path]:
    """Return all pages for people."""
    return [*(home / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")), *(home / "docs").rglob("*.md")]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def broken_links(page: Path) -> Iterator[str]:
    """Yield the relative links of a page that lead nowhere: to no file, or to no heading of it."""
    text = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text(encoding="utf-8")))
    for link in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            yield link


def missing_files(page: Path, home: Path) -> list[str]:
    """Return the files and folders that a page names in code marks and that are not there."""
    tops = "|".join(("bench", "docs", "testing", "tests", *PACKAGES))
    text = page.read_text(encoding="utf-8")
    named = re.findall(rf"`((?:{tops})/(?:[\w/.-]+\.\w+|[\w/-]+(?=`)))", text)
    # The map of folders in the README: a line for each, with those inside it.
    for top, line in re.findall(rf"^({tops})/ +(.*)$", text, re.MULTILINE):
        named += (f"{top}/{name}" for name in re.findall(r"(?<![/\w])([a-z]+/|\w+\.py)", line) if top != "tests")
    return [name for name in named if not (home / name).exists() and "/FAMILY" not in name]


def test_every_link_leads_somewhere() -> None:
    broken = {page.relative_to(HOME).as_posix(): list(broken_links(page)) for page in pages(HOME)}
    assert {page: links for page, links in broken.items() if links} == {}


def test_every_file_a_page_names_exists() -> None:
    """Decisions and the changelog name files as they were then."""
    history = (HOME / "CHANGELOG.md", *(HOME / "docs" / "decisions").iterdir())
    results = {str(page): missing_files(page, HOME) for page in pages(HOME) if page not in history}
    assert {page: names for page, names in results.items() if names} == {}


def test_what_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "page.md"
    (tmp_path / "docs" / "other.md").write_text("# One `two`: three\n```\n# none\n```\n", encoding="utf-8")
    page.write_text(
        "# Here\n[a](other.md#one-two-three) [b](#here) [c](https://x/y) `[d](no.md)`\n"
        "[e](gone.md) [f](other.md#none) [g](#there) `tests/gone.py` `docs/page.md`\n"
        "`docs/none` `docs` ```\ntests/    other/, fixtures/\ndocs/     page.md, old/\n```\n",
        encoding="utf-8",
    )
    assert list(broken_links(page)) == ["gone.md", "other.md#none", "#there"]
    assert missing_files(page, tmp_path) == ["tests/gone.py", "docs/none", "docs/old/"]


def runs_in_ci(file: Path) -> bool:
    """Return whether CI runs a test of a file: one that, like its file, is not marked slow, nightly or for a GPU."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    own = [node for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"]
    marks = [
        [mark for mark in node.decorator_list if "parametrize" not in ast.unparse(mark)]
        for node in body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    texts = ("".join(map(ast.unparse, [*own, *of_test])) for of_test in marks)
    return any(not re.search(r"mark\.(slow|nightly|cuda|llama)\b", text) for text in texts)


def unproven(text: str) -> list[str]:
    """Return the test files that a text names as proof, that CI does not run, and after which it does not say so."""
    parts = re.split(r"\b((?:tests/[\w/]+/)?test_\w+\.py)", text)
    says_so = re.compile(r"-m (nightly|slow)|not in CI")
    named = [
        (name, file)
        for name, rest in zip(parts[1::2], parts[2::2], strict=True)
        for file in HOME.glob(f"tests/**/{name.removeprefix('tests/')}")
        if not says_so.search(rest.split("\n")[0])
    ]
    return [name for name, file in named if not runs_in_ci(file)]


def test_a_proof_that_ci_does_not_run_says_so() -> None:
    """Decisions and the changelog name the tests of their day."""
    history = (HOME / "CHANGELOG.md", *(HOME / "docs" / "decisions").iterdir())
    silent = {str(page): unproven(page.read_text(encoding="utf-8")) for page in pages(HOME) if page not in history}
    assert {page: names for page, names in silent.items() if names} == {}


def test_a_proof_that_ci_does_not_run_is_noticed() -> None:
    quick, slow, night = "tests/docs/test_docs.py", "tests/faults/test_resume.py", "tests/kill/test_training.py"
    assert unproven(f"`{slow}`, `{quick}`, `pytest {night} -m nightly`, `{night}` | a\n not in CI") == [slow, night]
    assert unproven(f"`{slow}` (not in CI)") == []


def test_every_page_that_the_code_names_exists() -> None:
    paths = [path for package in (*PACKAGES, "tests", "testing", "bench") for path in (HOME / package).rglob("*.py")]
    paths += [*(HOME / "sessions").rglob("*.j2"), HOME / "Makefile", HOME / "more.mk", HOME / "verify" / "README.md"]
    made_up = {"docs/page.md", "docs/missing.md", "docs/gguf.md"}
    named = {name for path in paths for name in re.findall(r"\bdocs/[\w/.-]+\.md\b", path.read_text(encoding="utf-8"))}
    assert len(named) > 10 and sorted(name for name in named - made_up if not (HOME / name).exists()) == []


def test_every_command_in_the_docs_exists() -> None:
    known = {name.split()[0] for name in command_names()}
    for path in pages(HOME):
        text = path.read_text(encoding="utf-8")
        named = set(re.findall(r"`(?:\.venv/bin/)?peergate ([a-z]+)", text))
        named |= set(re.findall(r"^(?:\$ )?peergate ([a-z]+)", text, re.MULTILINE))
        assert named <= known, f"{path.name}: {named - known}"


def test_every_page_is_in_the_index() -> None:
    text = (HOME / "docs" / "README.md").read_text(encoding="utf-8")
    named = {path.relative_to(HOME / "docs").as_posix() for path in (HOME / "docs").rglob("*.md")}
    named = {name for name in named if not name.startswith(("decisions/", "reference/stages/"))}
    assert {name for name in named - {"README.md", "reference/README.md"} if f"]({name})" not in text} == set()


def words(page: Path) -> int:
    """Return the words of a page: what holds a letter or a digit, so no bars of tables, and no blocks of code."""
    return len(re.findall(r"[^\s|]*[^\W_][^\s|]*", _FENCE.sub("", page.read_text(encoding="utf-8"))))


def test_what_is_written_by_hand_stays_short_enough_to_be_read() -> None:
    by_hand = [HOME / "README.md", *(HOME / "docs").rglob("*.md")]
    generated = {"decisions", "reference", "gate-figures.md", "cai_demo"}
    by_hand = [path for path in by_hand if not generated & set(path.relative_to(HOME).parts)]
    assert sum(map(words, by_hand)) <= MOST_WORDS
