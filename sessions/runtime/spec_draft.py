"""Has a model draft a session spec from a goal, and checks every draft by the code of ``peergate spec check``."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from reviews.requests.file_reading import FOR_MODEL, RequestReader
from reviews.requests.model_request import DRAFTS
from sessions.pages.report.consult_context import ConsultContext, RequestOutcome
from sessions.requests.request_runner import Book, RequestCase
from sessions.runtime.preflight import DesignForecast, design_forecast
from specs.data.registered import read_registered
from specs.loading.loading import load_spec
from specs.session.session_spec import ResolvedSpec
from specs.stages.registry import STAGE_KINDS, known_names
from specs.system.errors import PeergateError, SpecError, UserError
from specs.system.home import HOME
from specs.system.masking import masker_of
from specs.system.text import plain
from specs.system.yaml.yaml_positions import read_yaml
from specs.trail.requested_review import DraftRequest

EXAMPLE = HOME / "specs" / "library" / "demo.yaml"
SAMPLE_ROWS = 2
VALUE_CHARACTERS = 300
REPLY_CHARACTERS = 2_500
OF_A_PERSON = ("notify", "base_url")
"""What no model writes into a spec: where keys, texts and messages would be sent."""


@dataclass
class Drafting:
    """The check of the drafts of one spec, and what came of the last one."""

    folder: Path
    """Paths in the spec start from here."""
    files: tuple[str, ...]
    """The files that it may name."""
    drafts: int = 0
    resolved: ResolvedSpec | None = field(default=None, init=False)
    """The spec of the newest draft without problems."""
    forecast: DesignForecast | None = field(default=None, init=False)

    def problems(self, text: str) -> str:
        """Return what is wrong with a draft; empty if it may be shown.

        A design that the gate would close is sent back as well, but for that of the last draft: what closes it may be
        in the data, and is shown with it.
        """
        self.drafts += 1
        # A person reads it at a terminal before signing: the display must match the file.
        if hidden := sorted(set(text) - set(plain(text, len(text)))):
            return f"the spec holds characters that are not shown: {', '.join(map(ascii, hidden))}"
        if foreign := sorted(set(self._find_foreign_names(text))):
            return f"the spec names what was not given: {', '.join(foreign)}"
        path = self.folder / f".peergate-draft-{os.getpid()}-{secrets.token_hex(4)}.yaml"
        try:
            path.write_text(text, encoding="utf-8")
            self.resolved = load_spec(path)
            self.forecast = design_forecast(self.resolved)
        except SpecError as error:
            return plain("\n".join(self._describe_problems(error, path)), REPLY_CHARACTERS)
        except (PeergateError, OSError, UnicodeError) as error:
            return plain(str(error).replace(str(path), "the spec"), REPLY_CHARACTERS)
        finally:
            path.unlink(missing_ok=True)
        if self.forecast.exit_code and self.drafts < DRAFTS:
            return plain("\n".join(self.forecast.lines()), REPLY_CHARACTERS)
        return ""

    def _describe_problems(self, error: SpecError, path: Path) -> Iterator[str]:
        for problem in error.problems:
            if Path(problem.path) == path:
                text = f"{problem.keys}: {problem.message} {problem.hint}"
                yield f"line {problem.line}, column {problem.column}: {text}".strip()
            else:
                # Words about a row may quote it, and held-out rows are shown to no model.
                yield f"{Path(problem.path).name}, line {problem.line}: the row lacks the form that the spec declares"

    def _find_foreign_names(self, text: str) -> Iterator[str]:
        """Yield the names of files that exist and were not given, and the keys that are for a person."""
        try:
            document: Any = read_yaml(text.encode("utf-8", "replace")).data
        except PeergateError:
            return
        for key, value in _leaves(document):
            if key in OF_A_PERSON:
                yield f"'{key}', which a person adds"
            name = value.partition("@")[0].removeprefix("path:")
            if name not in self.files and self._is_there(name):
                yield f"'{plain(name, 100)}'"

    def _is_there(self, name: str) -> bool:
        try:
            path = self.folder / name
            # A stage may have the name of a folder.
            return path.is_file() or ("/" in name and path.is_dir())
        except (OSError, ValueError):
            return False


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, element in cast(dict[str, Any], value).items():
            if name in OF_A_PERSON:
                yield name, ""
            yield from _leaves(element, str(name))
    elif isinstance(value, list):
        for element in cast(list[Any], value):
            yield from _leaves(element, key)
    elif isinstance(value, str):
        yield key, value


def draft_spec(
    request: DraftRequest,
    desk: ConsultContext,
    folder: Path,
    heldout: Path | None,
    data: Sequence[Path],
    others: Sequence[Path],
) -> tuple[RequestOutcome, Drafting]:
    """Have a spec drafted, in a folder from which its paths start.

    Of ``heldout`` the model is shown columns, of ``data`` the first rows, and the ``others`` as they are.

    Raises:
        UserError: a file cannot be read or lies outside of the folder, or the reviewer cannot be asked.
        AuditDamage: the trail of requested reviews is damaged.
    """
    folder = folder.resolve()
    named = {_inside(datum, folder): datum == heldout for datum in (*((heldout,) if heldout else ()), *data)}
    drafting = Drafting(folder, (*named, *(_inside(other, folder) for other in others)))
    with Book(desk) as book:
        if not book.asks_a_model:
            raise UserError("rules cannot draft a spec", hint="--vendor and --model name a model to ask")
        reader = RequestReader(masker_of(desk.environ), desk.readable, FOR_MODEL)
        reader.add_text("kinds.txt", "\n".join(_kinds()).encode(), "context")
        reader.add_text("example.yaml", EXAMPLE.read_bytes(), "context")
        parts = [line for name, is_heldout in named.items() for line in _file(folder, name, is_heldout)]
        reader.add_text("files.txt", "\n".join(parts or ["no files yet"]).encode(), "context")
        for other in others:
            reader.add(other, "context")
        case = RequestCase(request, reader.reading, request.effort, problems=drafting.problems)
        return book.carry_out(case), drafting


def _inside(path: Path, folder: Path) -> str:
    try:
        return path.resolve().relative_to(folder).as_posix()
    except ValueError as error:
        raise UserError(
            f"'{path}' lies outside of '{folder}'", hint="put the spec, with --out, next to its data"
        ) from error


def _file(folder: Path, name: str, is_heldout: bool) -> Iterator[str]:
    """Describe a file of rows: of held-out ones columns and count alone."""
    try:
        problems = read_registered(folder / name, None)
    except (OSError, ValueError) as error:
        raise UserError(f"'{name}' cannot be read: {error}") from error
    if isinstance(problems, list):
        raise SpecError(problems)
    rows = [json.loads(line) for line in problems.data.splitlines()[:SAMPLE_ROWS]]
    columns = ", ".join(sorted({column for row in rows for column in row}))
    use = "the held-out split" if is_heldout else "data"
    yield f"{name}: {use}, {problems.rows} rows that hold {problems.row_kind}, columns {columns}"
    for row in () if is_heldout else rows:
        yield f"  {plain(json.dumps(row, ensure_ascii=False), VALUE_CHARACTERS)}"


def _kinds() -> Iterator[str]:
    for name in known_names():
        kind = STAGE_KINDS[name]
        fields = [
            field
            if field_info.is_required()
            else f"{field}={field_info.get_default(call_default_factory=True, validated_data={})!r}"
            for field, field_info in kind.parameters.model_fields.items()
        ]
        reads = ", ".join(f"{role} ({what})" for role, what in kind.inputs.items()) or "what the stage names"
        yield f"{name}: reads {reads}; leaves {', '.join(kind.outputs)}"
        yield f"  parameters: {plain(', '.join(fields), 1500)}"
