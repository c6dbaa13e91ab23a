"""JSON Schemas of the contracts that leave Peergate; ``python -m specs.schemas specs/schema`` writes them.

They do not hold the lint rules: a file that fits its schema may still be refused.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from specs.jobs.grant_and_claim import Grant
from specs.session.constitution import Constitution
from specs.session.defaults import MAX_SEED, MAY_BE_LEFT_OUT
from specs.session.session_spec import SessionSpec
from specs.system.home import HOME
from specs.trail.bodies import FORMS, VERSION
from specs.trail.entry import Entry
from specs.trail.verdict import Verdict

SCHEMAS: dict[str, type[BaseModel]] = {
    "session.json": SessionSpec,
    "constitution.json": Constitution,
    "verdict.json": Verdict,
    "grant.json": Grant,
    "trail_entry.json": Entry,
    **{f"bodies/{kind}.v{VERSION}.json": form for kind, form in FORMS.items()},
}


@cache
def schema_text(model: type[BaseModel]) -> str:
    """Return the JSON Schema of a contract as the text of its file."""
    schema: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}
    if model is SessionSpec:
        # Of the file only: a resolved spec has the values of one profile, and all that a file may leave out.
        schema["properties"]["seed"] = {
            "type": "integer",
            "minimum": 0,
            "maximum": MAX_SEED,
            "description": "The seed of the analysis and of every stage.",
        }
        for place, names in MAY_BE_LEFT_OUT.items():
            there = schema if place == SessionSpec.__name__ else schema["$defs"][place]
            there["required"] = [name for name in there["required"] if name not in names]
        schema["properties"]["profiles"] = {
            "type": "object",
            "additionalProperties": {"type": "object"},
            "description": "What a profile changes: keys of this file; stages by their names.",
        }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def write_schemas(folder: Path) -> list[Path]:
    """Write every schema into ``folder`` and return the files; raises OSError if it cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, model in SCHEMAS.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(schema_text(model), encoding="utf-8")
        written.append(path)
    return written


if __name__ == "__main__":
    for file in write_schemas(Path(sys.argv[1]) if len(sys.argv) > 1 else HOME / "specs" / "schema"):
        print(file)
