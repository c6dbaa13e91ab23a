"""Peergate and ``verify/`` require the same files of the store, for every kind of entry: each is deleted once."""

from __future__ import annotations

import json
import shutil
import subprocess
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from bench.attack import exports
from bench.attack.evidence import complete_export, delete, deletions, edits, stored_files
from bench.attack.exports import build_verifier, go_codes, original, python_code
from bench.attack.forged_trail import Original, copy_trail
from reviews.audit.event_order import sequence_damage
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from specs.system.digests import Digest
from specs.trail.bodies import AFTER_THE_END, FORMS
from specs.trail.stored_evidence import EVIDENCE, stored_evidence, table_text
from testing.factories.bodies import BODIES, append_json, body_of
from testing.factories.forgery import keys_of, rows_of
from tests.reviews.audit.test_go_verifier import export

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
    "canary": {"looked.*.answer": "as its look entry names it"},
    "decision": {"code": "of the code"},
    "human": {"question": "of an entry"},
    "amendment": {"registration": "of the spec"},
    "pruning": {"weights.*.digest": "weights"},
    "replication_plan": {"design": "of the spec", "measured_by": "as in open"},
    "replication": {"plan": "of an entry", "heads.*": "of entries of other sessions"},
    "question": {"same": "of what was asked", "policy_code": "of the code"},
    "answer": {"question": "of an entry", "looked.*.answer": "as its look entry names it"},
    "resume": {"code_state.digest": "of the code"},
    "close": {"report": "of an entry"},
}  # fmt: skip
"""Digests in bodies that are not names of files in the store, and what they are of."""


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
    return build_verifier(tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="module")
def complete(recorded: Original, tmp_path_factory: pytest.TempPathFactory) -> Original:
    """An export that holds every kind of entry with every file that it may name."""
    return complete_export(recorded, tmp_path_factory.mktemp("complete") / "made")


def accepted_by_one(attacks: list[tuple[str, Path]], verifier: Path) -> list[str]:
    """Return the attacks that one of the two verifiers does not call damage."""
    codes = go_codes(verifier, [folder for _, folder in attacks])
    both = [(what, python_code(folder), code) for (what, folder), code in zip(attacks, codes, strict=True)]
    return [what for what, ours, theirs in both if (ours, theirs) != (1, 1)]


def test_verify_reads_the_table_of_peergate() -> None:
    again = "python -m specs.trail.stored_evidence verify/evidence.json"
    assert (ROOT / "verify" / "evidence.json").read_text(encoding="utf-8") == table_text(), again


@pytest.mark.parametrize("kind", FORMS)
def test_every_digest_of_every_kind_is_in_the_table_or_known_to_be_elsewhere(kind: str) -> None:
    required = {path.removesuffix("/").partition("?")[0] for path in EVIDENCE.get(kind, ())}
    assert set(digest_paths(FORMS[kind])) - required == set(ELSEWHERE.get(kind, ())) - required  # type: ignore[index]


def test_an_export_of_every_kind_holds_for_both(complete: Original, verifier: Path) -> None:
    assert {entry.kind for entry in complete.entries} == set(FORMS)
    assert (python_code(complete.folder), go_codes(verifier, [complete.folder])) == (0, [0])


def test_both_allow_the_same_kinds_after_the_end(verifier: Path, tmp_path: Path) -> None:
    allowed: set[str] = set()
    for kind in BODIES.keys() - {"verdict"}:  # Only the process of the reviewer signs it.
        path = tmp_path / kind / "trail.sqlite"
        trail = Trail(path, "small")
        append_json(trail, "open", "open", body_of("open"))
        append_json(trail, "close", "close", body_of("close"))
        append_json(trail, kind, f"{kind}/1", body_of(kind))
        trail.close()
        folder = export(rows_of(path), keys_of(path), path.parent)
        done = subprocess.run([str(verifier), str(folder)], capture_output=True, text=True)
        follows = "follows the end of the session" not in done.stdout + done.stderr
        assert follows == (not any("close" in damage for damage in sequence_damage(read_entries(path)))), kind
        allowed |= {kind} if follows else set()
    assert allowed == AFTER_THE_END == {"retraction", "pruning", "replication_plan", "replication"}


@pytest.mark.parametrize("export", ["complete", pytest.param("recorded", marks=pytest.mark.slow)])
def test_both_miss_each_file_that_is_deleted(
    export: str, verifier: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    whole: Original = request.getfixturevalue(export)
    required = {file.digest for entry in whole.entries for file in stored_evidence(entry.kind, entry.body)}
    files = stored_files(whole)
    assert len(files) > 20 and len(files) >= len(required)
    attacks = list(deletions(whole, tmp_path / "deleted"))
    codes = go_codes(verifier, [folder for _, folder in attacks])
    accepted = [
        what for (what, folder), code in zip(attacks, codes, strict=True) if (python_code(folder), code) != (1, 1)
    ]
    assert accepted == []


def test_both_find_an_edit_of_each_kind_of_entry(complete: Original, verifier: Path, tmp_path: Path) -> None:
    attacks = list(edits(complete, tmp_path / "edited"))
    assert {what.split()[0] for what, _ in attacks} == set(FORMS) and len(attacks) == 2 * len(FORMS) + len(EVIDENCE)
    codes = go_codes(verifier, [folder for _, folder in attacks])
    accepted = [
        what for (what, folder), code in zip(attacks, codes, strict=True) if (python_code(folder), code) != (1, 1)
    ]
    assert accepted == []


def test_a_table_that_asks_for_less_is_noticed(complete: Original, tmp_path: Path) -> None:
    """The control: the program of before, which did not know the evidence of a witness."""
    source = shutil.copytree(ROOT / "verify", tmp_path / "source", ignore=shutil.ignore_patterns("*_test.go"))
    table = json.loads((source / "evidence.json").read_text(encoding="utf-8"))
    del table["evidence"]["witness"]
    (source / "evidence.json").write_text(json.dumps(table), encoding="utf-8")
    if shutil.which("go") is None or not exports.PACKAGES.is_dir():
        pytest.skip("needs Debian's golang-go and golang-golang-x-mod-dev")
    witness = next(entry for entry in complete.entries if entry.kind == "witness")
    digest = witness.body["rows"]
    folder = copy_trail(complete, tmp_path / "out")
    delete(folder / "store" / digest[7:9] / digest[9:])
    assert (python_code(folder), go_codes(build_verifier(tmp_path, source), [folder])) == (1, [0])
