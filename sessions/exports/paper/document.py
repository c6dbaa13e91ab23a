"""A paper as Markdown and as LaTeX, from one document: texts of a run are escaped in both."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

from sessions.exports.paper.claims import Claim
from specs.system import markdown
from specs.system.text import one_line


class Code(NamedTuple):
    """A name, digest or command, which is shown as it is."""

    text: str


class Citation(NamedTuple):
    """A work of the list of references, by its key."""

    key: str


Part = str | Claim | Code | Citation
"""A string is Peergate's own words."""
Line = Sequence[Part]


class Paragraph(NamedTuple):
    """Running text."""

    line: Line


class ItemList(NamedTuple):
    """A list of points."""

    lines: Sequence[Line]


class Table(NamedTuple):
    """A table, which is a file as well."""

    name: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Line]]


class Figure(NamedTuple):
    """A plot: ``name`` is its path below ``figures``, without an ending."""

    name: str
    caption: str


Block = Paragraph | ItemList | Table | Figure


class Section(NamedTuple):
    """A heading with what is below it."""

    title: Line
    blocks: Sequence[Block]
    level: int = 1


# ---- Markdown


def markdown_of(title: Line, sections: Sequence[Section], claims: Sequence[Claim]) -> str:
    """Return the paper as Markdown: each claim has a footnote."""
    parts = [f"# {_markdown_line(title)}"]
    for section in sections:
        parts.append(f"#{'#' * section.level} {_markdown_line(section.title)}")
        parts += map(_markdown_block, section.blocks)
    parts += [f"[^{claim.id}]: {_markdown_line(_footnote(claim))}" for claim in claims]
    return "\n\n".join(parts) + "\n"


def _markdown_block(block: Block) -> str:
    match block:
        case Paragraph(line):
            return _markdown_line(line)
        case ItemList(lines):
            return "\n".join(f"- {_markdown_line(line)}" for line in lines)
        case Figure(name, caption):
            return f"![{caption}](figures/{name}.svg)"
        case Table(_, caption, header, rows):
            lines = [header, ["---"] * len(header), *([_markdown_line(cell) for cell in row] for row in rows)]
            return f"{caption}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown_line(line: Line) -> str:
    return "".join(map(_markdown_part, line))


def _markdown_part(part: Part) -> str:
    match part:
        case Claim():
            return f"{markdown.line(part.text)}[^{part.id}]"
        case Code(text):
            return markdown.code(text)
        case Citation(key):
            return f"[@{key}]"
        case _:
            return part


def _footnote(claim: Claim) -> Line:
    parts: list[Part] = []
    for source in claim.sources:
        parts += ["; " if parts else "", Code(source.session), f", entry {source.entry} ", Code(source.key), ", "]
        parts += [Code(source.entry_digest)]
        parts += [", evidence ", Code(source.evidence)] if source.evidence else []
        parts += [" at ", Code(source.pointer)] if source.pointer else []
    return [*parts, ": ", Code(claim.find)]


# ---- LaTeX

_PREAMBLE = r"""\documentclass{article}
\usepackage[utf8]{inputenc}
\usepackage[T1]{fontenc}
\usepackage{array,graphicx,longtable}
\usepackage[hidelinks]{hyperref}
\newcommand{\claim}[2]{#2\textsuperscript{\hyperlink{#1}{#1}}}
\sloppy
"""
_ESCAPED = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "-": "{-}",
    **{character: f"\\{character}" for character in "{}$&#_%"},
}
_BREAK = 8
"""Characters of a name after which it may be broken."""


def latex_of(title: Line, sections: Sequence[Section], claims: Sequence[Claim]) -> str:
    """Return the paper as LaTeX: each claim is marked with its number, which the last section explains."""
    parts = [_PREAMBLE, f"\\title{{{_latex_line(title)}}}\n\\date{{}}\n\\begin{{document}}\n\\maketitle"]
    for section in sections:
        parts.append(f"\\{'sub' * (section.level - 1)}section{{{_latex_line(section.title)}}}")
        parts += map(_latex_block, section.blocks)
    items = [f"\\item[\\hypertarget{{{claim.id}}}{{{claim.id}}}] {_latex_line(_footnote(claim))}" for claim in claims]
    parts.append("\\section*{Claims}\n\\begin{description}\n" + "\n".join(items) + "\n\\end{description}")
    return "\n\n".join([*parts, "\\bibliographystyle{plain}\n\\bibliography{references}\n\\end{document}"]) + "\n"


def latex_table(table: Table) -> str:
    """Return the file of a table, which the paper inputs."""
    width = f"p{{{0.96 / len(table.header) - 0.02:.3f}\\linewidth}}"
    column = f">{{\\raggedright\\arraybackslash}}{width}"
    rows = [" & ".join(map(_latex_line, row)) for row in table.rows]
    head = " & ".join(map(escape_latex, table.header))
    caption = f"\\caption{{{escape_latex(table.caption)}}}\\\\\n\\hline\n"
    return (
        f"\\begin{{longtable}}{{{column * len(table.header)}}}\n{caption}"
        f"{head} \\\\\n\\hline\n" + "".join(f"{row} \\\\\n" for row in rows) + "\\hline\n\\end{longtable}\n"
    )


def escape_latex(text: str) -> str:
    """Return text that LaTeX typesets as it is; characters that its fonts may lack are named by their number."""
    return "".join(_ESCAPED.get(character) or _typeset(character) for character in text)


def _typeset(character: str) -> str:
    latin = character < "\u0100" and unicodedata.category(character)[0] == "L"
    return character if latin or " " <= character <= "~" else f"[U+{ord(character):04X}]"


def _latex_block(block: Block) -> str:
    match block:
        case Paragraph(line):
            return _latex_line(line)
        case ItemList(lines):
            items = "\n".join(f"\\item {{}}{_latex_line(line)}" for line in lines)
            return f"\\begin{{itemize}}\n{items}\n\\end{{itemize}}"
        case Figure(name, caption):
            path = f"\\includegraphics[width=\\linewidth]{{figures/{name}.pdf}}"
            return f"\\begin{{figure}}\n{path}\n\\caption{{{escape_latex(caption)}}}\n\\end{{figure}}"
        case Table(name):
            return f"\\input{{tables/{name}.tex}}"


def _latex_line(line: Line) -> str:
    return "".join(map(_latex_part, line))


def _latex_part(part: Part) -> str:
    match part:
        case Claim():
            return f"\\claim{{{part.id}}}{{{escape_latex(part.text)}}}"
        case Code(text):
            text = one_line(text, markdown.LINE_CHARACTERS)
            pieces = [escape_latex(text[start : start + _BREAK]) for start in range(0, len(text), _BREAK)]
            return "\\texttt{" + "\\allowbreak{}".join(pieces) + "}"
        case Citation(key):
            return f"\\cite{{{key}}}"
        case _:
            return escape_latex(part)


# ---- CSV


def csv_table(table: Table) -> str:
    """Return a table with its exact values, and the claims of each row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*table.header, "claims"])
    for row in table.rows:
        ids = [part.id for cell in row for part in cell if isinstance(part, Claim)]
        writer.writerow([*(_csv_cell(cell) for cell in row), " ".join(ids)])
    return text.getvalue()


def _csv_cell(cell: Line) -> Any:
    values = [part.value if isinstance(part, Claim) else getattr(part, "text", part) for part in cell]
    if len(values) == 1 and isinstance(values[0], int | float):
        return values[0]
    text = one_line("".join(map(str, values)), markdown.LINE_CHARACTERS)
    # A spreadsheet runs a cell that begins like a formula.
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and not isinstance(values[0], int | float) else text
