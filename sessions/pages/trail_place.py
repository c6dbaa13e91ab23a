"""The trail that a command reads, in a run folder, a folder of requested reviews, or an export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.tables.query import QueryResult, TrailQuery, select
from sessions.run.run_layout import STORE
from specs.system.errors import UserError
from specs.trail.entry import DESIGN
from specs.trail.session_bodies import ExitEntry


class TrailPlace(NamedTuple):
    """A trail and its evidence."""

    folder: Path
    trail: Path
    """The path that names the trail; of an export the folder itself."""

    @property
    def is_export(self) -> bool:
        """Return whether this is an export, which holds only the trail and its store."""
        return self.trail == self.folder

    @property
    def store(self) -> Store:
        """The content store next to the trail."""
        return Store(self.folder / STORE)

    def history(self) -> History:
        """Return every entry for display; raises AuditDamage if the trail or an entry cannot be read."""
        entries = self.find(TrailQuery()).entries if self.is_export else read_entries(self.trail)
        return History(entries, self.store)

    def find(self, wanted: TrailQuery, limit: int | None = None) -> QueryResult:
        """Return the newest entries that fit; raises what :meth:`history` raises."""
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

    def entry_named(self, history: History, wanted: str) -> RecordedEntry:
        """Return the entry with a number or key; raises UserError if the trail has no such entry."""
        result = next((entry for entry in history if wanted in (str(entry.seq), entry.key)), None)
        if result is None:
            hint = "`peergate audit list` shows numbers; keys look like decision/sft.1"
            if "/" not in wanted and not wanted.isdecimal():
                hint += f"; a number of the report is traced by `peergate audit show {self.folder} claim {wanted}`"
            raise UserError(f"no entry '{wanted}'", hint=hint)
        return result


def way_of(result: RecordedEntry, history: History) -> list[dict[str, Any]]:
    """Return the entries of an attempt from plan and grant to the decision, with every digest in them."""
    # All digests of a body are listed, whatever its kind, and an entry of any kind may be of an attempt.
    stage, number = result.raw.get("stage"), result.raw.get("attempt")
    if number is None:
        return []
    attempt = history.attempt(stage or DESIGN, number)
    entries = (attempt.plan, attempt.grant, attempt.launch, attempt.exit, attempt.metrics)
    entries += (attempt.checks, attempt.packet, attempt.verdict, attempt.decision)
    way: list[dict[str, Any]] = []
    for entry in sorted((entry for entry in entries if entry is not None), key=lambda entry: entry.seq):
        names = {name: value for name, value in entry.raw.items() if str(value).startswith("sha256:")}
        if isinstance(entry.body, ExitEntry):
            names |= {name: output.digest for name, output in entry.body.outputs.items()}
        way.append({"entry": entry.seq, "kind": entry.kind, "key": entry.key, "digest": entry.digest, "names": names})
    return way
