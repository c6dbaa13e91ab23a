"""`peergate review import`: reviews of older trails as records. Nothing is written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from reviews.legacy import read_folder
from sessions.commands.output import print_json, print_table


def import_folder(folder: Path, as_json: bool) -> None:
    """Print a record for every review file below a folder."""
    records = read_folder(folder)
    if as_json:
        print_json({"records": [record.as_json() for record in records]})
        return
    rows = [(one.source, one.status, one.verdict or "-", one.confidence, one.evidence) for one in records]
    print_table(("source", "status", "verdict", "confidence", "evidence"), rows)
    statuses = Counter(one.status for one in records)
    verdicts = Counter(one.verdict for one in records if one.verdict)
    told = ", ".join(f"{count} {name}" for name, count in sorted((statuses | verdicts).items())) or "none"
    print(f"\n{len(records)} records: {told}")
    print("read-only: no record is in a session's trail, and none can open a gate")
