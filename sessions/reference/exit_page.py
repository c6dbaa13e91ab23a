"""The page of the exit codes, from the error tree."""

from __future__ import annotations

from collections.abc import Iterator

from sessions.reference.contract_fields import docstring, table
from sessions.report.overview import EXIT_CODES
from specs.errors import EXIT_MEANINGS, VERIFY_EXIT_MEANINGS, ExitCode, PeergateError


def exit_page() -> str:
    """Return the page."""
    codes = [(str(code.value), code.name.lower(), EXIT_MEANINGS[code]) for code in ExitCode]
    verify = [(str(code), text) for code, text in VERIFY_EXIT_MEANINGS.items()]
    errors = [(f"`{one.__name__}`", str(one.exit_code.value), docstring(one)) for one in _errors(PeergateError)]
    closed = [(f"`{decision}`", str(code.value)) for decision, code in EXIT_CODES.items()]
    return (
        "# Exit codes\n\n"
        f"{table(('code', 'name', 'when'), codes)}\n\n"
        "A requested review that was answered ends with 0, whatever the answer is. A stage process ends with 2\n"
        "without a job folder, with 4 when it is refused, with 1 when it broke; the wrapper writes the code into\n"
        "`exit.json`.\n\n## A closed session\n\n"
        f"{table(('decision', 'code'), closed)}\n\n"
        "## peergate audit verify\n\n"
        "This command alone has its own codes.\n\n"
        f"{table(('code', 'when'), verify)}\n\n"
        "## Errors\n\n"
        f"{table(('class in `specs/errors.py`', 'code', 'what it says'), errors)}\n"
    )


def _errors(root: type[PeergateError]) -> Iterator[type[PeergateError]]:
    """Yield the tree as ``specs/errors.py`` declares it, whatever else was imported."""
    yield root
    for one in root.__subclasses__():
        if one.__module__ == root.__module__:
            yield from _errors(one)
