"""The trail that a command reads, in a run folder, a folder of requested reviews, or an export."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.tables.query import QueryResult, TrailQuery, select
from sessions.run.run_layout import STORE
from specs.system.errors import UserError


class TrailPlace(NamedTuple):
    """A trail and its evidence."""

    folder: Path
    trail: Path
    """The path that names the trail; of an export the folder itself."""

    @property
    def is_export(self) -> bool:
        """Whether this is an export, which holds only the trail and its store."""
        return self.trail == self.folder

    @property
    def store(self) -> Store:
        """The content store next to the trail."""
        return Store(self.folder / STORE)

    def entries(self) -> list[RecordedEntry]:
        """Return every entry for display; raises AuditDamage if the trail or an entry cannot be read."""
        return self.find(TrailQuery()).entries if self.is_export else read_entries(self.trail)

    def find(self, wanted: TrailQuery, limit: int | None = None) -> QueryResult:
        """Return the newest entries that fit; raises what :meth:`entries` raises."""
        return select(self.trail, wanted, limit)

    def value(self, digest: str) -> Any:
        """Return a stored value: its JSON, or its text where it is not strict JSON, as what a server sent may be."""

        def refuse(constant: str) -> None:
            raise ValueError(constant)

        data = self.store.get(digest)
        try:
            return json.loads(data, parse_constant=refuse)
        except (ValueError, RecursionError):
            return data.decode("utf-8", "replace")

    def entry_named(self, entries: Sequence[RecordedEntry], wanted: str) -> RecordedEntry:
        """Return the entry with a number or key; raises UserError if the trail has no such entry."""
        result = next((entry for entry in entries if wanted in (str(entry.seq), entry.key)), None)
        if result is None:
            hint = "`peergate audit list` shows numbers; keys look like decision/sft.1"
            if "/" not in wanted and not wanted.isdecimal():
                hint += f"; a number of the report is traced by `peergate audit show {self.folder} claim {wanted}`"
            raise UserError(f"no entry '{wanted}'", hint=hint)
        return result


_WAY = ("plan", "grant", "launch", "exit", "metrics", "checks", "packet", "verdict", "decision")


def way_of(result: RecordedEntry, entries: Sequence[RecordedEntry]) -> list[dict[str, Any]]:
    """Return the entries of an attempt from plan and grant to the decision, with every digest in them."""
    stage, attempt = result.raw.get("stage"), result.raw.get("attempt")
    if attempt is None:
        return []
    at = f"{stage or 'design'}.{attempt}"
    way: list[dict[str, Any]] = []
    for entry in entries:
        kind, key = entry.kind, entry.key
        # Grants and jobs are named SESSION.STAGE.ATTEMPT, everything else STAGE.ATTEMPT.
        if kind in _WAY and (key.partition("/")[2] == at or key.endswith(f".{at}")):
            names = {name: value for name, value in entry.raw.items() if str(value).startswith("sha256:")}
            names |= {name: made["digest"] for name, made in entry.raw.get("outputs", {}).items()}
            way.append({"entry": entry.seq, "kind": kind, "key": key, "digest": entry.digest, "names": names})
    return way
