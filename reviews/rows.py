"""Read raw rows: typed, each line once, nothing skipped. A row file that cannot be read whole is missing evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from specs.digests import Contract
from specs.errors import EvidenceMissing

Row = TypeVar("Row", bound=Contract)


def read_rows(path: Path | None, model: type[Row], what: str, *, may_be_empty: bool = False) -> tuple[Row, ...]:
    """Return all rows of a JSONL file.

    Raises:
        EvidenceMissing: there is no file, a line is not such a row, or the file is empty and must not be.
    """
    if path is None or not path.is_file():
        raise EvidenceMissing(f"{what} are missing", hint="the job left none, or they do not match their digest")
    rows: list[Row] = []
    with path.open("rb") as handle:
        for number, line in enumerate(handle, 1):
            try:
                rows.append(model.model_validate_json(line, strict=True))
            except ValidationError as error:
                raise EvidenceMissing(
                    f"line {number} is not a {model.__name__}: {error.errors()[0]['msg']}", where=what
                ) from error
    if not rows and not may_be_empty:
        raise EvidenceMissing(f"{what} are empty")
    return tuple(rows)


def read_objects(path: Path | None, what: str) -> tuple[dict[str, Any], ...]:
    """Return all rows of a JSONL file whose form nobody has registered; there may be none.

    Raises:
        EvidenceMissing: there is no file, or a line is not one JSON object.
    """
    if path is None or not path.is_file():
        raise EvidenceMissing(f"{what} are missing", hint="the job left none, or they do not match their digest")
    rows: list[dict[str, Any]] = []
    with path.open("rb") as handle:
        for number, line in enumerate(handle, 1):
            try:
                row = json.loads(line, parse_constant=_no_number)
            except (ValueError, RecursionError) as error:
                raise EvidenceMissing(f"line {number} is not JSON: {error}", where=what) from error
            if not isinstance(row, dict):
                raise EvidenceMissing(f"line {number} is not a JSON object", where=what)
            rows.append(row)
    return tuple(rows)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")
