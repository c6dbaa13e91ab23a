"""The history of a session with its registered spec: what everything but a judge reads of a trail."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Self

from reviews.history.recorded_history import RecordedHistory
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from specs.loading.stored_spec import read_resolved
from specs.session.session_spec import ResolvedSpec


class History(RecordedHistory):
    """The entries of a session's trail, with what follows from them and the spec that they register."""

    @classmethod
    def read(cls, trail: Path, store: Path) -> Self:
        """Read the trail of a session, unverified, and name its content store; raises AuditDamage if that fails."""
        return cls(read_entries(trail), Store(store))

    @property
    def resolved(self) -> ResolvedSpec:
        """The spec that is registered at the end of these entries, or raise EvidenceMissing."""
        return self._resolved

    @cached_property
    def _resolved(self) -> ResolvedSpec:
        return self.store.read((self.newest_amendment or self.opening).spec, read_resolved)
