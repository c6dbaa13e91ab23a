"""`peergate spec pin`: digests come into the file, and nothing else of it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from specs.loading.loading import load_spec
from specs.session.pins import pin
from specs.system.digests import digest_file
from specs.system.errors import PeergateError, SpecError, UserError
from testing.factories.spec_files import items, write_spec

UNPINNED = ("heldout.jsonl\n  digest: HELDOUT", "heldout.jsonl   # the split")
OTHER = "sha256:" + "0" * 64


def test_what_is_registered_stays_the_same_and_only_digests_come_in(tmp_path: Path) -> None:
    path = write_spec(tmp_path, UNPINNED, ("alpha: 0.05", "alpha:    0.05   # as ever"))
    before, loaded = path.read_text(encoding="utf-8"), load_spec(path)
    text, prompts = digest_file(tmp_path / "heldout.jsonl"), digest_file(tmp_path / "prompts.jsonl")
    assert [(item.where, item.before, item.digest) for item in pin(path)] == [
        ("heldout", None, text),
        ("data.prompts", None, prompts),
    ]
    after = path.read_text(encoding="utf-8")
    assert after.replace(f"digest: {text}\n  ", "").replace(f", digest: {prompts}", "") == before
    pinned = load_spec(path)
    assert pinned.data_digests == loaded.data_digests and pinned.spec.heldout == loaded.spec.heldout
    (tmp_path / "prompts.jsonl").write_text(items("q", 5), encoding="utf-8")
    with pytest.raises(SpecError, match="spec pin"):
        load_spec(path)


def test_pinning_twice_changes_nothing_and_a_changed_file_is_pinned_anew(tmp_path: Path) -> None:
    path = write_spec(tmp_path, UNPINNED)
    pin(path)
    once = path.read_bytes()
    pin(path)
    assert path.read_bytes() == once
    before = digest_file(tmp_path / "heldout.jsonl")
    (tmp_path / "heldout.jsonl").write_text(items("x", 3), encoding="utf-8")
    assert pin(path)[0].before == before
    assert path.read_bytes() == once.replace(before.encode(), digest_file(tmp_path / "heldout.jsonl").encode())


@pytest.mark.parametrize(
    "heldout",
    [
        "heldout: {path: heldout.jsonl}",
        "heldout: {path: 'heldout.jsonl', digest: }",
        f'heldout: {{digest: "{OTHER}", path: "heldout.jsonl"}}',
        "heldout:\n  # a comment\n  path: >-\n    heldout.jsonl\n",
        "heldout: {\n  path: heldout.jsonl,  # a comment\n  }",
        f"heldout:\n  digest: {OTHER}  # a comment\n  path: heldout.jsonl",
        "heldout:\r\n  path: heldout.jsonl\r",
    ],
)
def test_every_way_to_write_a_mapping_keeps_its_form(tmp_path: Path, heldout: str) -> None:
    path = write_spec(tmp_path, ("heldout:\n  path: heldout.jsonl\n  digest: HELDOUT", heldout))
    before = path.read_bytes()
    pin(path)
    digest = digest_file(tmp_path / "heldout.jsonl")
    assert load_spec(path).spec.heldout.digest == digest
    assert path.read_bytes().count(b"#") == before.count(b"#")


def test_profiles_are_pinned_with_their_own_files(tmp_path: Path) -> None:
    companions = "companions: {plan: {path: prompts.jsonl}, sibling: {link: 'https://a.b'}}\n"
    profiles = f"{companions}profile: a\nprofiles:\n  a: {{}}\n  b:\n    heldout: {{path: other.jsonl}}\nstages:"
    path = write_spec(tmp_path, UNPINNED, ("stages:", profiles))
    (tmp_path / "other.jsonl").write_text(items("o", 3), encoding="utf-8")
    assert [item.where for item in pin(path)] == ["heldout", "data.prompts", "companions.plan", "profiles.b.heldout"]
    assert load_spec(path).spec.companions["plan"].digest == digest_file(tmp_path / "prompts.jsonl")
    assert load_spec(path, "b").spec.heldout.digest == digest_file(tmp_path / "other.jsonl")


def test_nothing_is_written_where_a_file_is_missing_or_the_spec_is_none(tmp_path: Path) -> None:
    path = write_spec(tmp_path, UNPINNED)
    (tmp_path / "prompts.jsonl").unlink()
    before = path.read_bytes()
    with pytest.raises(SpecError, match=r"file 'prompts\.jsonl' does not exist"):
        pin(path)
    assert path.read_bytes() == before
    path.write_text("heldout: [", encoding="utf-8")
    with pytest.raises(SpecError, match="not valid YAML"):
        pin(path)
    with pytest.raises(UserError, match="cannot be read"):
        pin(tmp_path / "none.yaml")


def test_a_spec_that_would_come_out_as_another_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_spec(tmp_path, UNPINNED)
    before = path.read_bytes()

    def elsewhere(text: str, node: object, digest: str) -> tuple[int, int, str]:
        return len(text), len(text), f"digest: {digest}\n"

    monkeypatch.setattr("specs.session.pins._change", elsewhere)
    with pytest.raises(PeergateError):
        pin(path)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 4
