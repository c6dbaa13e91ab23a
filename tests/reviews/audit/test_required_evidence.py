"""Peergate and ``verify/`` require the same files of the store, for every kind of entry: each is deleted once."""

from __future__ import annotations

import json
import shutil
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from bench.attack import exports, forgeries
from bench.attack.exports import built, go_codes, original, python_code
from bench.attack.forged_trail import Original, Step, copied, forged
from reviews.trail.envelope import open_envelope, seal, signatures_text
from reviews.trail.store import Store
from specs.digests import Digest
from specs.trail.bodies import FORMS
from specs.trail.key_policy import SIGNERS
from specs.trail.stored_evidence import EVIDENCE, stored_evidence, table_text

ROOT = Path(__file__).parents[3]
ELSEWHERE = {
    "open": {"registration": "of the spec", "code_state.digest": "of the code", "replicates.plan": "of an entry"},
    "model": {"digest": "weights"},
    "grant": {
        "registration": "of the spec", "parameters": "of what the plan says", "inputs.*": "of an exit or of open",
        "model": "weights", "decision": "of an entry",
    },
    "launch": {"grant": "of an entry", "resumes.digest": "weights"},
    "exit": {"outputs.*.digest": "weights, where it is neither stored nor kept", "log_left": "of a log with secrets"},
    "metrics": {"code": "of the code"},
    "verdict": {"looked.*.answer": "as its look entry names it"},
    "decision": {"code": "of the code"},
    "human": {"asked": "of an entry"},
    "amendment": {"registration": "of the spec"},
    "pruned": {"weights.*.digest": "weights"},
    "replication": {"design": "of the spec", "measured_by": "as in open"},
    "replicated": {"plan": "of an entry", "heads.*": "of entries of other sessions"},
    "asked": {"same": "of what was asked", "policy_code": "of the code"},
    "answered": {"asked": "of an entry", "looked.*.answer": "as its look entry names it"},
    "resume": {"code_state.digest": "of the code"},
    "close": {"report": "of an entry"},
}  # fmt: skip
"""Digests in bodies that are no names of files in the store, and what they are of."""


def digest_paths(form: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield where a body of this form holds digests."""
    origin, arguments = typing.get_origin(form), typing.get_args(form)
    if form == Digest:
        yield ".".join(path)
    elif isinstance(form, type) and issubclass(form, BaseModel):
        hints = typing.get_type_hints(form, include_extras=True)
        for name in form.model_fields:
            yield from digest_paths(hints[name], (*path, name))
    elif origin is typing.Annotated:
        yield from digest_paths(arguments[0], path)
    elif origin in (typing.Union, types.UnionType):
        for argument in arguments:
            yield from digest_paths(argument, path)
    elif origin in (dict, tuple, list):
        for argument in arguments[origin is dict :]:
            yield from digest_paths(argument, (*path, "*"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Original:
    """The export of a session as it was recorded."""
    return original(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None or not exports.PACKAGES.is_dir():
        pytest.skip("needs Debian's golang-go and golang-golang-x-mod-dev")
    return built(tmp_path_factory.mktemp("go"))


class EveryKind:
    """Bodies of every kind, in which each path of the table leads to a file of its own."""

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


@pytest.fixture(scope="module")
def complete(recorded: Original, tmp_path_factory: pytest.TempPathFactory) -> Original:
    """An export that holds every kind of entry with every file that it may name."""
    place = tmp_path_factory.mktemp("complete")
    bare = recorded._replace(folder=copied(recorded, place / "bare"))
    shutil.rmtree(bare.folder / "store")
    steps = EveryKind(Store(bare.folder / "store")).steps(recorded)
    folder = forged(bare, steps, place / "export")
    return Original(folder, [step.entry for step in steps], recorded.keys)


def stored_files(whole: Original) -> list[Path]:
    store = whole.folder / "store"
    return sorted(path.relative_to(whole.folder) for path in store.rglob("*") if path.is_file())


def delete(path: Path) -> None:
    """Delete a file with its folder, if that is then empty: it would be found as one without a file."""
    path.unlink()
    if not any(path.parent.iterdir()):
        path.parent.rmdir()


def test_verify_reads_the_table_of_peergate() -> None:
    again = "python -m specs.trail.stored_evidence verify/evidence.json"
    assert (ROOT / "verify" / "evidence.json").read_text(encoding="utf-8") == table_text(), again


@pytest.mark.parametrize("kind", FORMS)
def test_every_digest_of_every_kind_is_in_the_table_or_known_to_be_elsewhere(kind: str) -> None:
    required = {path.removesuffix("/").partition("?")[0] for path in EVIDENCE.get(kind, ())}
    assert set(digest_paths(FORMS[kind].body)) - required == set(ELSEWHERE.get(kind, ())) - required  # type: ignore[index]


def test_an_export_of_every_kind_holds_for_both(complete: Original, verifier: Path) -> None:
    assert {entry.kind for entry in complete.entries} == set(FORMS)
    assert (python_code(complete.folder), go_codes(verifier, [complete.folder])) == (0, [0])


@pytest.mark.parametrize("export", ["complete", pytest.param("recorded", marks=pytest.mark.slow)])
def test_both_miss_each_file_that_is_deleted(
    export: str, verifier: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    whole: Original = request.getfixturevalue(export)
    required = {file.digest for entry in whole.entries for file in stored_evidence(entry.kind, entry.body)}
    files = stored_files(whole)
    assert len(files) > 20 and len(files) >= len(required)
    for start in range(0, len(files), 40):
        folders = []
        for number, file in enumerate(files[start : start + 40]):
            folder = copied(whole, tmp_path / str(start + number))
            delete(folder / file)
            folders.append(folder)
        assert go_codes(verifier, folders) == [1] * len(folders), files[start : start + 40]
        assert [python_code(folder) for folder in folders] == [1] * len(folders), files[start : start + 40]


def changed_after_signing(data: bytes) -> bytes:
    """Return the envelope of an entry with another key, under the signatures of before."""
    opened = open_envelope(data)
    payload = opened.payload.replace(b'"key":"', b'"key":"x', 1)
    assert payload != opened.payload
    return seal(payload, signatures_text(*opened.signatures))


@pytest.mark.parametrize("edit", ["after signing", "missing evidence", "another signer"])
def test_both_find_an_edit_of_each_kind_of_entry(complete: Original, verifier: Path, tmp_path: Path, edit: str) -> None:
    kinds: list[str] = []
    for number, entry in enumerate(complete.entries):
        steps = forgeries.steps_of(complete)
        if edit == "after signing":
            steps[number] = Step(entry, envelope=changed_after_signing)
        elif edit == "another signer":
            signers = SIGNERS.get(entry.kind, ("log",))
            steps[number] = Step(entry, role=next(role for role in complete.keys if role not in signers))
        elif names := list(stored_evidence(entry.kind, entry.body)):
            text = json.dumps(entry.body).replace(names[-1].digest, "sha256:" + "0" * 64)
            steps[number] = Step(entry.model_copy(update={"body": json.loads(text)}))
        else:
            continue
        forged(complete, steps, tmp_path / str(number))
        kinds.append(entry.kind)
    folders = sorted(tmp_path.iterdir(), key=lambda folder: int(folder.name))
    assert set(kinds) >= (set(EVIDENCE) if edit == "missing evidence" else set(FORMS))
    assert dict(zip(kinds, go_codes(verifier, folders), strict=True)) == dict.fromkeys(kinds, 1)
    assert dict(zip(kinds, map(python_code, folders), strict=True)) == dict.fromkeys(kinds, 1)


def test_a_table_that_asks_for_less_is_noticed(complete: Original, tmp_path: Path) -> None:
    """The control: the program of before, which did not know the evidence of a witness."""
    source = shutil.copytree(ROOT / "verify", tmp_path / "source", ignore=shutil.ignore_patterns("*_test.go"))
    table = json.loads((source / "evidence.json").read_text(encoding="utf-8"))
    del table["witness"]
    (source / "evidence.json").write_text(json.dumps(table), encoding="utf-8")
    if shutil.which("go") is None or not exports.PACKAGES.is_dir():
        pytest.skip("needs Debian's golang-go and golang-golang-x-mod-dev")
    witness = next(entry for entry in complete.entries if entry.kind == "witness")
    digest = witness.body["rows"]
    folder = copied(complete, tmp_path / "out")
    delete(folder / "store" / digest[7:9] / digest[9:])
    assert (python_code(folder), go_codes(built(tmp_path, source), [folder])) == (1, [0])
