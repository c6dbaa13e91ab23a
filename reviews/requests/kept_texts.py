"""What a requested review may look into next to what it is shown: texts kept in its own store, as they may be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reviews.evidence.readable_evidence import Texts
from reviews.trail.chain.store import Store
from specs.system.digests import Digest
from specs.trail.requested_review import QuestionEntry, ReadFile


class KeptTexts(Texts):
    """The texts of one request, as its ``question`` entry names them."""

    def __init__(self, question_entry: QuestionEntry, store: Store) -> None:
        """Raises EvidenceMissing or AuditDamage if their list is missing or another one."""
        self._table: Mapping[str, Digest] = store.get_value(question_entry.readable) if question_entry.readable else {}
        self._store = store

    @property
    def all_names(self) -> Sequence[str]:
        """The names of the texts."""
        return list(self._table)

    def text(self, name: str) -> str:
        """Return a text; raises EvidenceMissing or AuditDamage if it is missing or another one."""
        return self._store.get(self._table[name]).decode()


def as_file(number: int, digest: Digest, text: str) -> ReadFile:
    """Return an answer to a call as the file that its reviewer points at."""
    return ReadFile(
        name=f"answers/{number}", role="evidence", digest=digest, bytes=len(text.encode()), text=text.rstrip("\n")
    )
