"""A person's signature on a spec: over one registration, by the workspace's key, for one session."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from reviews.audit.spec_signature import sign_spec, signature_damage
from reviews.history.history import History
from reviews.trail.chain.keys import FOLDER, KeyFolder
from reviews.trail.tables.open_table import read_entries
from sessions.run.signed_specs import SIGNED, find_signature, keep_signature, require_signature, use_signature
from sessions.runtime import registration, runtime
from specs.system.digests import digest_bytes
from specs.system.errors import BlockedError
from testing.factories.evidence_on_disk import resolved_spec
from testing.fixtures.quick_session import Silent, code_now

ONE, OTHER = digest_bytes(b"one"), digest_bytes(b"other")


def test_a_signature_is_for_one_registration_and_one_session(tmp_path: Path) -> None:
    spec = tmp_path / "a.draft.yaml"
    with pytest.raises(BlockedError, match="no person has signed") as refused:
        require_signature(spec, tmp_path, ONE)
    assert "peergate spec sign" in refused.value.hint
    keep_signature(tmp_path, ONE, "mia")
    assert require_signature(spec, tmp_path, ONE).by == "mia"
    assert find_signature(tmp_path, OTHER) is None
    use_signature(spec, tmp_path, ONE)
    with pytest.raises(BlockedError, match="another session has used"):
        use_signature(spec, tmp_path, ONE)


def test_a_signature_by_another_key_or_under_another_name_is_none(tmp_path: Path) -> None:
    path = keep_signature(tmp_path, ONE, "mia")
    moved = tmp_path / SIGNED / f"{OTHER.removeprefix('sha256:')}.json"
    moved.write_bytes(path.read_bytes())
    assert find_signature(tmp_path, OTHER) is None, "a signature cannot be renamed to another spec"
    elsewhere = KeyFolder(tmp_path / "elsewhere" / FOLDER)
    elsewhere.create()
    for signer in (elsewhere.signer("human"), KeyFolder(tmp_path / FOLDER).signer("builder")):
        path.write_bytes(sign_spec(signer, ONE, "mia").canonical())
        assert find_signature(tmp_path, ONE) is None
    path.write_text("{}", encoding="utf-8")
    assert find_signature(tmp_path, ONE) is None


def test_a_draft_starts_nothing_unsigned_whoever_starts_it(tmp_path: Path) -> None:
    resolved_spec(tmp_path)
    draft = tmp_path / "x.draft.yaml"
    (tmp_path / "spec.yaml").rename(draft)
    display = cast(Any, Silent())
    with pytest.raises(BlockedError, match="no person has signed"):
        runtime.start(draft, tmp_path / "runs", None, display)
    draft.rename(tmp_path / "spec.yaml")
    with pytest.raises(BlockedError, match="no person has signed"):
        runtime.start(tmp_path / "spec.yaml", tmp_path / "runs", None, display, signed=True)
    assert not (tmp_path / "runs").exists()


def test_the_audit_compares_the_signature_with_what_was_registered(tmp_path: Path) -> None:
    resolved = resolved_spec(tmp_path)
    runs = tmp_path / "runs"
    material = registration.material_of(tmp_path / "spec.yaml", resolved)
    keep_signature(runs, resolved.registration(), "mia")
    right = require_signature(tmp_path / "spec.yaml", runs, resolved.registration())
    elsewhere = KeyFolder(tmp_path / "elsewhere" / FOLDER)
    elsewhere.create()
    ours = KeyFolder(runs / FOLDER).signer("human")
    for name, signed, damage in (
        ("right", right, ""),
        ("none", None, ""),
        ("other", sign_spec(ours, OTHER, "mia"), "is not over what was registered"),
        ("renamed", right.model_copy(update={"by": "ada"}), "is not over what was registered"),
        ("foreign", sign_spec(elsewhere.signer("human"), resolved.registration(), "mia"), "does not have for people"),
    ):
        registration.register(runs / name, resolved, material, code_now(), signed=signed)
        results = list(signature_damage(History(read_entries(runs / name / "trail.sqlite"))))
        assert len(results) == bool(damage) and damage in "".join(results), name
