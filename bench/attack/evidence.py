"""Family ``evidence``: an export that holds every kind of entry, each file of it deleted and each kind edited.

An attack is missed if one of the two verifiers accepts the export.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.attack.exports import BATCH, build_verifier, go_codes, missing_packages, original, python_code
from bench.attack.forged_trail import Original, Step, copy_trail, forge_trail, steps_of
from bench.attack.outcome import Outcome
from reviews.trail.chain.envelope import open_envelope, seal, signatures_text
from reviews.trail.chain.store import Store
from specs.trail.bodies import FORMS
from specs.trail.key_policy import SIGNERS
from specs.trail.stored_evidence import EVIDENCE, stored_evidence


def run(seed: int, folder: Path) -> Outcome:
    """Delete every stored file once, and edit every kind of entry in each way."""
    if missing := missing_packages():
        return Outcome(not_run=missing)
    outcome = Outcome()
    whole = complete_export(original(folder), folder / "complete")
    program = build_verifier(folder)
    attacks = [*deletions(whole, folder / "deleted"), *edits(whole, folder / "edited")]
    random.Random(seed).shuffle(attacks)
    for start in range(0, len(attacks), BATCH):
        batch = attacks[start : start + BATCH]
        theirs = go_codes(program, [place for _, place in batch])
        for (what, place), their in zip(batch, theirs, strict=True):
            ours = python_code(place)
            outcome.record((ours, their) == (1, 1), f"{what}: Peergate says {ours}, verify/ says {their}")
    return outcome


def complete_export(recorded: Original, place: Path) -> Original:
    """Return an export that holds every kind of entry with every file that it may name."""
    place.mkdir()
    bare = recorded._replace(folder=copy_trail(recorded, place / "bare"))
    shutil.rmtree(bare.folder / "store")
    steps = EveryKind(Store(bare.folder / "store")).steps(recorded)
    folder = forge_trail(bare, steps, place / "export")
    return Original(folder, [step.entry for step in steps], recorded.keys)


def deletions(whole: Original, place: Path) -> Iterator[tuple[str, Path]]:
    """Yield an export without each of its stored files."""
    place.mkdir()
    for number, file in enumerate(stored_files(whole)):
        folder = copy_trail(whole, place / str(number))
        delete(folder / file)
        yield f"{file} deleted", folder


def edits(whole: Original, place: Path) -> Iterator[tuple[str, Path]]:
    """Yield exports in which an entry of each kind was changed after signing, names another file, or is another's."""
    place.mkdir()
    for number, entry in enumerate(whole.entries):
        changes = {"changed after signing": Step(entry, envelope=changed_after_signing)}
        signers = SIGNERS.get(entry.kind, ("log",))
        changes["signed by another"] = Step(entry, role=next(role for role in whole.keys if role not in signers))
        if names := list(stored_evidence(entry.kind, entry.body)):
            text = json.dumps(entry.body).replace(names[-1].digest, "sha256:" + "0" * 64)
            changes["names missing evidence"] = Step(entry.model_copy(update={"body": json.loads(text)}))
        for what, step in changes.items():
            steps = steps_of(whole)
            steps[number] = step
            yield f"{entry.kind} {what}", forge_trail(whole, steps, place / f"{number}-{what.replace(' ', '-')}")


class EveryKind:
    """Makes bodies of every kind, with a separate stored file for each path of the table."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._count = 0

    def steps(self, whole: Original) -> list[Step]:
        """Return a trail that begins with "open", ends with "close", and holds every kind between."""
        like = whole.entries[0]
        kinds = ["open", *(kind for kind in FORMS if kind not in ("open", "close")), "close"]
        return [Step(like.model_copy(update=self._changes(kind) | {"kind": kind, "key": kind})) for kind in kinds]

    def _changes(self, kind: str) -> dict[str, Any]:
        policy = {} if kind in ("open", "keys") else {"policy": None}
        return {"body": self.body(kind)} | policy

    def body(self, kind: str) -> dict[str, Any]:
        """Return a body with everything that the table names."""
        body: dict[str, Any] = {}
        for path in EVIDENCE.get(kind, ()):
            path, is_list = path.removesuffix("/"), path.endswith("/")
            path, _, condition = path.partition("?")
            *names, last = path.split(".")
            digest = self._list() if is_list else self._file()
            member: dict[str, Any] = body
            for name in names:
                # Members of tables are called as the condition, so that one has each.
                member = member.setdefault(name if name != "*" else condition or "a", {})
            member[last if last != "*" else "a"] = digest
            if condition:
                member[condition] = True
        return body

    def _file(self) -> str:
        self._count += 1
        return self._store.put(f"evidence {self._count}".encode())

    def _list(self) -> str:
        return self._store.put_value({"a": self._file(), "b": self._file()})


def stored_files(whole: Original) -> list[Path]:
    """Return the files of an export's store, from the export on."""
    store = whole.folder / "store"
    return sorted(path.relative_to(whole.folder) for path in store.rglob("*") if path.is_file())


def delete(path: Path) -> None:
    """Delete a file with its folder, if that is then empty: it would be found as one without a file."""
    path.unlink()
    if not any(path.parent.iterdir()):
        path.parent.rmdir()


def changed_after_signing(data: bytes) -> bytes:
    """Return the envelope of an entry with another key, under the signatures of before."""
    opened = open_envelope(data)
    payload = opened.payload.replace(b'"key":"', b'"key":"x', 1)
    assert payload != opened.payload
    return seal(payload, signatures_text(*opened.signatures))
