"""Tools that look through rows and texts as the wall lets them through: no filter finds what is withheld."""

from __future__ import annotations

from reviews.evidence import row_queries
from reviews.evidence.row_queries import MOST_READABLE, ArtifactRows
from sessions.builder.tools.reading_tools import artifacts, require_artifact
from sessions.builder.tools.tool_context import PhaseWork
from specs.trail.tool_arguments import CompareRows, Grep, QueryRows


def query_rows(work: PhaseWork, arguments: QueryRows) -> str:
    """Return the rows that fit, or how many there are of each group."""
    return row_queries.query(_rows(work, arguments.name), arguments)


def compare_rows(work: PhaseWork, arguments: CompareRows) -> str:
    """Return the items whose field differs between two artifacts."""
    return row_queries.compare(_rows(work, arguments.first), _rows(work, arguments.second), arguments)


def grep(work: PhaseWork, arguments: Grep) -> str:
    """Return the lines that hold a text, with artifact and number."""
    names = [arguments.name] if arguments.name else [readable.name for readable in artifacts(work.session)]
    return row_queries.grep(((name, _text(work, name)) for name in names), arguments)


def _rows(work: PhaseWork, name: str) -> ArtifactRows:
    return row_queries.rows_of(name, _text(work, name))


def _text(work: PhaseWork, name: str) -> str:
    return work.wall.readable(require_artifact(work.session, name).digest, MOST_READABLE)
