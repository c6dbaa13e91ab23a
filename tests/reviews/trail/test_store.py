from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reviews.trail.chain.store import Store, write_durably
from specs.system.digests import canonical_bytes, digest_bytes, digest_value
from specs.system.errors import AuditDamage, EvidenceMissing
from specs.trail.entry import GENESIS, Head

pytestmark = pytest.mark.synced


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_what_is_put_is_got_under_its_sha256(store: Store, data: bytes) -> None:
    digest = store.put(data)
    assert digest == digest_bytes(data)
    assert store.get(digest) == data


def test_a_file_lies_under_the_first_two_letters_of_its_digest(store: Store) -> None:
    digest = store.put(b"rows")
    name = digest.removeprefix("sha256:")
    assert files(store.root) == [f"{name[:2]}/{name[2:]}"]
    assert store.path(digest) == store.root / name[:2] / name[2:]


def test_putting_the_same_bytes_again_changes_nothing(store: Store) -> None:
    path = store.path(store.put(b"rows"))
    before = path.stat()
    assert store.put(b"rows") == digest_bytes(b"rows")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert len(files(store.root)) == 1


def test_values_are_kept_as_canonical_json(store: Store) -> None:
    value = {"b": [1, 2.5, None], "a": "é"}
    digest = store.put_value(value)
    assert digest == digest_value(value) == store.put_value({"a": "é", "b": [1, 2.5, None]})
    assert store.get(digest) == canonical_bytes(value)
    assert store.get_value(digest) == value
    head = Head(size=0, digest=GENESIS)
    assert store.get(store.put_value(head)) == head.canonical()


def test_an_edited_file_is_never_returned(store: Store) -> None:
    right, wrong = b'{"right":1}', b'{"right":2}'
    digest = store.put(right)
    # What was parsed before hides nothing either.
    assert store.read(digest, json.loads) is store.read(digest, json.loads)
    store.path(digest).write_bytes(wrong)
    for read in (store.get, store.get_value):
        with pytest.raises(AuditDamage, match=f"have the digest {digest_bytes(wrong)}, not {digest}"):
            read(digest)
    with pytest.raises(AuditDamage):
        store.read(digest, json.loads)
    # Putting it again does not hide the damage either: the auditor is to see it.
    assert store.put(right) == digest
    with pytest.raises(AuditDamage):
        store.get(digest)


def test_only_the_newest_and_small_values_are_kept_parsed(store: Store) -> None:
    small = [store.put(b"%d" % number) for number in range(100)]
    first = store.read(small[0], bytes.split)
    for digest in small:
        store.read(digest, bytes.split)
    assert store.read(small[0], bytes.split) is not first and first == [b"0"]
    large = store.put(b" " * (1 << 20) + b"1")
    assert store.read(large, bytes.split) is not store.read(large, bytes.split)


def test_what_is_not_there_is_missing_evidence(store: Store) -> None:
    with pytest.raises(EvidenceMissing, match=f"{GENESIS} is not in the content store"):
        store.get(GENESIS)
    digest = store.put(b"rows")
    store.path(digest).unlink()
    with pytest.raises(EvidenceMissing):
        store.get_value(digest)


def test_a_name_that_leads_out_of_the_store_returns_nothing(store: Store, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    store.put(b"rows")
    with pytest.raises((EvidenceMissing, AuditDamage)):
        store.get("sha256:../secret")


def no_space(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("failing", ["os.fsync", "pathlib.Path.replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "order.json"
    path.write_bytes(b"old")
    with monkeypatch.context() as broken:
        broken.setattr(failing, no_space)
        with pytest.raises(OSError, match="No space left"):
            write_durably(path, b"new")
    assert files(tmp_path) == ["order.json"]
    assert path.read_bytes() == b"old"
    write_durably(path, b"new")
    assert path.read_bytes() == b"new"
    assert files(tmp_path) == ["order.json"]


def test_a_put_that_fails_keeps_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", no_space)
        with pytest.raises(OSError, match="No space left"):
            store.put(b"rows")
    assert files(store.root) == []
    with pytest.raises(EvidenceMissing):
        store.get(digest_bytes(b"rows"))


def test_the_file_is_on_disk_before_it_has_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a" / "b" / "exit.json"
    events: list[str] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").resolve()
        events.append(f"{'folder' if target.is_dir() else 'file'}, named: {path.exists()}")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    write_durably(path, b"{}")
    # The folder is new, so its own name has to last too.
    assert events == ["file, named: False", "folder, named: True", "folder, named: True"]
    events.clear()
    write_durably(path, b"[]")
    assert events == ["file, named: True", "folder, named: True"]
