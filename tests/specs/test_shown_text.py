"""What others wrote is text wherever it is shown: a line of it cannot pass for one of ours, nor be markup."""

from __future__ import annotations

import ast
import io
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

import sessions.commands
from sessions.commands import output
from sessions.pages.report import plots
from sessions.pages.report.live_display import Terminal
from sessions.run.money.ledger import Balance
from specs.system import markdown
from specs.system.errors import PeergateError, Problem, SpecError
from specs.system.text import BAR, block, json_text, one_line
from specs.trail.verdict import RequiredChange
from tests.reviews.gate.test_decide import decided, finding, verdict

FRAGMENTS = (
    *("\n", "\r", "\r\n", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\t", "    ", " ", "\\", "\x00", "\ud800"),
    *("# approved", "## Gates", "gate base: approve", "- ", "+ ", "* ", "1. ", "2) ", "> ", "---", "===", "***"),
    *("| a | b |", "|---|---|", "|", "`", "```", "~~~", "~~x~~", "*x*", "__x__", "_x_", "a_b", "[x](http://e)"),
    *("![x](http://e)", "[x]: http://e", "[x][y]", "[^1]", "<b>", "<!-- ", "</td>", "<http://e>", "&lt;", "&#35;"),
    *("\x1b[31m", "\x1b]8;;http://e\x1b\\", "\x9b2J", "\x1b", "\u202e", "\u2066", "\u200b", "\ufeff", "\U000e0041"),
    *("[bold red]", "[/]", "[link=http://e]", "{{7*7}}", "{% x %}", "http://e.example", "www.e.example", "$\\frac{"),
    *("0.5", "-1", "[ ] x", "\u3164"),
)
HOSTILE = st.lists(st.sampled_from(FRAGMENTS) | st.characters(), max_size=12).map("".join)
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def is_shown(text: str) -> bool:
    """Return whether a terminal draws every character of a line, and obeys none."""
    return not any(unicodedata.category(word) in ("Cc", "Cf", "Cs", "Zl", "Zp") for word in text)


def texts(markdown_text: str) -> list[tuple[str, str]]:
    """Return blocks as a CommonMark reader with GitHub's tables finds them, and the inline parts of them."""
    results: list[tuple[str, str]] = []
    for token in READER.parse(markdown_text):
        results.append((token.type, token.content if token.type in ("fence", "code_block", "html_block") else ""))
        results += [(child.type, child.content) for child in token.children or ()]
    return results


@patient
@given(HOSTILE)
def test_a_line_is_one_printable_line(text: str) -> None:
    content = one_line(text, 500)
    assert is_shown(content) and "\n" not in content and len(content) <= 500 and content == content.strip()
    assert one_line(content, 500) == content


@patient
@given(HOSTILE)
def test_every_line_of_a_block_stands_behind_a_bar(text: str) -> None:
    for line in block(text, 500, "  ").split("\n"):
        assert line.startswith(f"  {BAR}".rstrip()) and is_shown(line.replace("\t", ""))


@patient
@given(HOSTILE)
def test_json_is_exact_and_obeyed_by_no_terminal(text: str) -> None:
    content = json_text({"text": text, text: 1})
    assert json.loads(content) == {"text": text, text: 1}
    assert is_shown(content.replace("\n", "")) and "\ud800" not in content
    content.encode()


@patient
@given(HOSTILE, st.sampled_from(["{}", "# {}", "- {}", "1. {}", "> {}", "**{}**", "x {} y"]))
def test_a_line_of_markdown_is_the_text_it_is(text: str, frame: str) -> None:
    string = one_line(text, markdown.LINE_CHARACTERS)
    results, harmless = texts(frame.format(markdown.line(text))), texts(frame.format("harmless" if string else ""))
    blocks = [kind for kind, _ in results if not kind.startswith("text")]
    assert blocks == [kind for kind, _ in harmless if not kind.startswith("text")]
    message = "".join(content for kind, content in results if kind.startswith("text"))
    assert message == "".join(content for kind, content in harmless if kind == "text").replace("harmless", string)


@patient
@given(HOSTILE, HOSTILE)
def test_a_cell_stays_in_its_table(text: str, two: str) -> None:
    for make in (markdown.cell, markdown.code):
        page = f"| a | b |\n|---|---|\n| {make(text)} | {make(two)} |\n\nafter"
        kinds = [kind for kind, _ in texts(page)]
        assert (kinds.count("tr_open"), kinds.count("td_open"), kinds.count("table_open")) == (2, 2, 1)
        assert set(kinds) <= {*_TABLE, "text", "text_special", "code_inline", "inline"}
        # GitHub's reader splits a row at every bar that no odd number of backslashes is before.
        row = page.split("\n")[2]
        assert len(_github_cells(row)) == 2


_TABLE = {
    f"{name}_{end}" for name in ("table", "thead", "tbody", "tr", "th", "td", "paragraph") for end in ("open", "close")
}


def _github_cells(row: str) -> list[str]:
    cells, here, escaped = list[str](), "", False
    for character in row.strip()[1:-1]:
        if character == "|" and not escaped:
            cells.append(here)
            here = ""
        else:
            here += character
        escaped = character == "\\" and not escaped
    return [*cells, here]


@patient
@given(HOSTILE)
def test_a_fenced_block_is_not_ended_by_what_is_in_it(text: str) -> None:
    kinds = [kind for kind, _ in texts(f"{markdown.fence_text(text, 5000)}\n\nafter")]
    assert kinds == ["fence", "paragraph_open", "inline", "text", "paragraph_close"]


def test_numbers_and_signs_of_a_report_are_left_as_they_are() -> None:
    for text in (
        "0.1234",
        "-0.5",
        "+0.1",
        "1e-05",
        "33",
        "p < 0.05 and gain >= 0.1 [+0.1, +0.3]",
        "mcnemar_p",
        "a -> b",
    ):
        assert markdown.line(text) == text


# ---- what prints them ---------------------------------------------------------------------------------------------

NASTY = "bad\ngate base: approve\r\x1b[2K\u2028# approved [bold red]x[/] \x1b]8;;http://e\x1b\\y"


def test_the_terminal_shows_a_finding_as_one_line_and_no_markup() -> None:
    screen = io.StringIO()
    # A terminal that understands colours: what is left of the escapes in it is ours.
    terminal = Terminal(Console(file=screen, width=1000, force_terminal=True, color_system=None, highlight=False))
    decision = decided(result=verdict(finding().model_copy(update={"statement": NASTY}), approve=False))
    change = RequiredChange(text=NASTY, parameter="rate", value=1)
    terminal.decision(decision.model_copy(update={"required_changes": (change,)}), _balance())
    terminal.say(NASTY)
    lines = screen.getvalue().replace("\x1b[2m", "").replace("\x1b[0m", "").splitlines()
    assert len(lines) == 2 + len(decision.reasons) + 1 + 1, lines
    assert all(line[2] == line[5] == ":" for line in lines) and "[bold red]x[/]" in lines[-1]
    assert all(is_shown(line) for line in lines)


def test_the_reasons_on_record_are_lines() -> None:
    decision = decided(result=verdict(finding().model_copy(update={"statement": NASTY}), approve=False))
    assert decision.reasons and all(one_line(reason, 1000) == reason for reason in decision.reasons)


def _balance() -> Balance:
    return Balance(0, 0, 0, 0, 0)


def test_commands_print_lines_tables_and_errors(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_line(f"  - {NASTY}")
    output.print_table(("a", "b"), [(NASTY, "x")])
    output.print_error(PeergateError(NASTY, where=NASTY, hint=NASTY))
    output.print_error(SpecError([Problem("spec.yaml", 1, 1, "name", NASTY, NASTY)] * 2))
    captured = capsys.readouterr()
    assert [line[:4] for line in captured.out.splitlines()] == ["  - ", "a   ", "----", "bad "]
    assert [line.split("bad")[0] for line in captured.err.splitlines()] == [
        *("peergate: ", "  "),
        *("peergate: spec.yaml:1:1: name: ", "spec.yaml:1:1: name: ", "  2 problems found; nothing was started"),
    ]


ALLOWED = {"json_text", "page", "draw_mermaid", "read_text", "str"}
"""What a command may write without a function of ``output.py``: JSON, and whole pages that were made safe."""


def test_a_secret_over_two_lines_is_masked_before_its_lines_are_joined(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    value = "i0VpEBOWfbZAVaBSo63bbH6xnAbnBa7K"
    monkeypatch.setenv("SERVICE_API_KEY", value)
    split = f"used {value[:15]}\n    {value[15:]} for it"
    output.print_error(PeergateError(split, where=split, hint=split))
    output.print_error(SpecError([Problem("spec.yaml", 1, 1, "name", split)]))
    output.print_table(("what",), [(split,)])
    output.print_block(split, 1000)
    console = Console(file=io.StringIO(), width=400)
    Terminal(console).call("read_log", split, split, is_error=True)
    view = "".join(capsys.readouterr()) + console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert view.count("[masked: SERVICE_API_KEY]") == 8
    assert value[:15] not in view and value[15:] not in view


def test_no_command_prints_past_the_functions_that_keep_lines_apart() -> None:
    """The control for new commands: `print` of what a person wrote would be found here."""
    folder = Path(sessions.commands.__path__[0])
    for path in sorted(folder.rglob("*.py")):
        if path.name in ("output.py", "cli.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _name(node.func) in ("print", "sys.stdout.write", "sys.stderr.write"):
                assert _is_safe(node), (
                    f"{path.name}:{node.lineno}: use print_line, print_block, print_table or print_json"
                )


def _name(node: ast.expr) -> str:
    return ast.unparse(node)


def _is_safe(call: ast.Call) -> bool:
    if all(isinstance(expression, ast.Constant) for expression in call.args):
        return True
    made = {ast.unparse(node.func).rpartition(".")[2] for node in ast.walk(call) if isinstance(node, ast.Call)}
    names = {ast.unparse(expression) for expression in call.args}
    return bool(made & ALLOWED) or names == {"text"}


@pytest.mark.drawn
@pytest.mark.parametrize("name", ["$\\frac{", "_hidden", "a\nb", "\x1b[31m", "x" * 5000, "<script>"])
def test_the_name_of_a_kind_is_drawn_as_it_is(tmp_path: Path, name: str) -> None:
    kind = {"items": 4, "baseline": 1, "treatment": 2, "gained": 1, "lost": 0}
    report: dict[str, Any] = {"accuracy_by_kind": {name: kind, "other": kind}}
    names = plots.draw(tmp_path, report, {})
    assert names == ["accuracy.svg", "pairs.svg"]
    for drawn in names:
        assert "<script>" not in (tmp_path / drawn).read_text(encoding="utf-8")
