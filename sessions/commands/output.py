"""How commands print: data on stdout, talk on stderr; JSON always with a schema_version."""

from __future__ import annotations

import json
import sys
from typing import Any

SCHEMA_VERSION = 1


def print_json(data: dict[str, Any]) -> None:
    """Print one JSON object with the schema version first."""
    json.dump({"schema_version": SCHEMA_VERSION} | data, sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def print_table(headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a plain aligned table."""
    widths = [max(len(row[column]) for row in [headers, *rows]) for column in range(len(headers))]
    for row in (headers, tuple("-" * width for width in widths), *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
