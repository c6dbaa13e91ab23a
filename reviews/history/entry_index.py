"""The recorded entries of a session, indexed by key and by kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Self, cast, overload

from reviews.trail.chain.envelope import FormT, RecordedEntry, entries_of
from reviews.trail.chain.store import Store
from specs.system.errors import EvidenceMissing


class EntryIndex(Sequence[RecordedEntry]):
    """Entries in order; a slice is an index too, and entries keep their numbers (:attr:`RecordedEntry.seq`)."""

    def __init__(self, entries: Iterable[RecordedEntry], store: Store | None = None) -> None:
        self._entries = tuple(entries)
        self._store = store

    @overload
    def __getitem__(self, index: int) -> RecordedEntry: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> RecordedEntry | Self:
        if isinstance(index, slice):
            return type(self)(self._entries[index], self._store)
        return self._entries[index]

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def store(self) -> Store:
        """The content store of the session; raises EvidenceMissing if the history was read without one."""
        if self._store is None:
            raise EvidenceMissing("the history was read without its content store")
        return self._store

    @property
    def session(self) -> str:
        """The name of the session."""
        return self._entries[0].session

    @cached_property
    def _by_key(self) -> dict[str, RecordedEntry]:
        # The first entry of a key counts, as when it was appended.
        return {entry.key: entry for entry in reversed(self._entries)}

    @cached_property
    def _by_kind(self) -> dict[str, list[RecordedEntry]]:
        result: dict[str, list[RecordedEntry]] = {}
        for entry in self._entries:
            result.setdefault(entry.kind, []).append(entry)
        return result

    def of(self, *forms: type[FormT]) -> list[RecordedEntry[FormT]]:
        """Return the entries of some kinds, in order."""
        if len(forms) == 1:
            return cast(list[RecordedEntry[FormT]], list(self._by_kind.get(forms[0].KIND, ())))
        return entries_of(self._entries, *forms)

    def newest(self, *forms: type[FormT]) -> RecordedEntry[FormT] | None:
        """Return the newest entry of some kinds, if there is one."""
        newest = [self._by_kind[form.KIND][-1] for form in forms if form.KIND in self._by_kind]
        return cast(RecordedEntry[FormT], max(newest, key=lambda entry: entry.seq)) if newest else None

    def find(self, form: type[FormT], *parts: object) -> RecordedEntry[FormT] | None:
        """Return the entry of a kind that ``parts`` name (:meth:`specs.trail.entry.Body.key_of`), if there is one."""
        entry = self._by_key.get(form.key_of(*parts))
        return cast(RecordedEntry[FormT], entry) if entry is not None and entry.kind == form.KIND else None

    @cached_property
    def _by_digest(self) -> dict[str, RecordedEntry]:
        return {entry.digest: entry for entry in self._entries}

    def find_digest(self, digest: str) -> RecordedEntry | None:
        """Return the entry with a digest, if there is one."""
        return self._by_digest.get(digest)

    def before(self, entry: RecordedEntry) -> Self:
        """Return what had been recorded when an entry was appended."""
        return self[: entry.seq]

    def find_key(self, key: str) -> RecordedEntry | None:
        """Return the entry with a key, if there is one."""
        return self._by_key.get(key)
