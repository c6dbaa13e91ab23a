"""The form of every kind of entry: what is written has it, what does not have it is found, what is newer is kept."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviews.trail import signing
from reviews.trail.integrity import walk_trail
from reviews.trail.tables.open_table import read_trail
from reviews.trail.trail import Trail
from specs.system.errors import AuditDamage
from specs.trail import bodies
from specs.trail.bodies import FORMS, VERSION, misfit
from specs.trail.entry import KINDS, EntryKind
from testing.factories.bodies import BODIES, NAME, append_json, body_of
from testing.factories.forgery import chained, entries_of, keys_of, put, rows_of


def find_misfit(kind: str, body: Any, version: int = 1) -> str | None:
    return misfit(kind, version, json.dumps(body).encode())


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Trail]:
    trail = Trail(tmp_path / "run" / "trail.sqlite", "small")
    append_json(trail, "open", "open", body_of("open"))
    yield trail
    trail.close()


def test_every_kind_has_a_form() -> None:
    differing = (set(FORMS) | KINDS | set(BODIES)) - (set(FORMS) & KINDS & set(BODIES))
    places = "EntryKind (specs/trail/entry.py), specs/trail/bodies.py and testing/factories/bodies.py"
    assert not differing, f"list {sorted(differing)} in {places}"


@pytest.mark.parametrize("kind", sorted(FORMS))
def test_what_a_form_asks_for_is_needed_and_nothing_else_is_taken(kind: EntryKind) -> None:
    body = BODIES[kind]
    assert find_misfit(kind, body) == ""
    assert find_misfit(kind, body | {"more": 1}) == "body.more is unknown"
    assert find_misfit(kind, [body]) not in ("", None)
    required = [name for name, field in FORMS[kind].model_fields.items() if field.is_required()]
    for name in required:
        assert (
            find_misfit(kind, {key: value for key, value in body.items() if key != name}) == f"body.{name} is missing"
        )
    for name in body:
        problem = find_misfit(kind, body | {name: [[]]})
        # A plan may change parameters to anything here: what it may be is asked where it is resolved.
        assert problem is not None and problem.startswith(f"body.{name}"), name


@pytest.mark.parametrize(
    ("kind", "name", "value", "problem"),
    [
        ("lost", "attempt", "1", "body.attempt is '1': Input should be a valid integer"),
        ("lost", "attempt", True, "body.attempt is True: Input should be a valid integer"),
        ("lost", "attempt", 1.5, "body.attempt is 1.5: Input should be a valid integer"),
        ("lost", "stage", 3, "body.stage is 3: Input should be a valid string"),
        ("result", "is_error", 0, "body.is_error is 0: Input should be a valid boolean"),
        ("packet", "packet", NAME.upper(), "body.packet is 'SHA256:"),
        ("spend", "usd", math.inf, "body.usd is inf: Input should be a finite number"),
        ("spend", "what", "take", "body.what is 'take': Input should be"),
        ("decision", "opens", {"stage": "sft"}, "body.opens.attempt is missing"),
        ("exit", "outputs", {"rows": {}}, "1 further problem"),
    ],
)
def test_nothing_is_converted_and_what_differs_is_reported(
    kind: EntryKind, name: str, value: Any, problem: str
) -> None:
    assert problem in (find_misfit(kind, body_of(kind, **{name: value})) or "")


def test_what_is_newer_is_not_judged() -> None:
    assert find_misfit("séance", {"x": 1}) is None
    assert find_misfit("lost", {"x": 1}, VERSION + 1) is None
    assert "must be at least 1" in (find_misfit("lost", BODIES["lost"], 0) or "")


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6) | st.just(NAME),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from(sorted(FORMS)), data=st.data())
def test_no_body_raises(kind: EntryKind, data: st.DataObject) -> None:
    names = st.sampled_from([*FORMS[kind].model_fields, "more"])
    find_misfit(kind, BODIES[kind] | data.draw(st.dictionaries(names, JSON, max_size=4)))
    find_misfit(kind, data.draw(JSON))


# ---- writing ----------------------------------------------------------------------------------------------------


def test_a_body_without_its_form_is_not_recorded(trail: Trail) -> None:
    with pytest.raises(
        ValueError, match=r"'lost/a' is refused, it does not have the form of a 'lost': body\.key is mi"
    ):
        append_json(trail, "lost", "lost/a", {"stage": "sft", "attempt": 1})
    assert trail.head().size == 1 and trail.find("lost/a") is None
    assert append_json(trail, "lost", "lost/a", body_of("lost")).seq == 1
    trail.verify_chain()


def test_an_entry_names_the_version_of_its_kind(trail: Trail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "VERSION", 9)
    monkeypatch.setattr(bodies, "VERSION", 9)
    assert append_json(trail, "lost", "lost/a", body_of("lost")).entry.version == 9
    trail.verify_chain()
    monkeypatch.undo()
    walk = walk_trail(read_trail(trail.path))
    assert walk.damage == [] and ["version 9, is newer" in note for note in walk.notes] == [True]


# ---- verifying --------------------------------------------------------------------------------------------------


def forged(path: Path, **changes: Any) -> list[str]:
    """Sign another last entry with the right key, put it there with a head over it, and return what is found."""
    trail = Trail(path, "small")
    append_json(trail, "open", "open", body_of("open"))
    append_json(trail, "lost", "lost/a", body_of("lost"))
    trail.close()
    rows, keys = rows_of(path), keys_of(path)
    last = entries_of(rows)[-1].model_copy(update=changes)
    put(path, chained([last], keys, stored_entries=rows[:-1]), keys)
    walk = walk_trail(read_trail(path))
    assert walk.tree.size == 2 and len(walk.entries) == 2, "what does not fit is kept"
    return walk.damage


def test_a_well_signed_entry_without_its_form_is_found(tmp_path: Path) -> None:
    results = forged(tmp_path / "trail.sqlite", body=body_of("lost", attempt="1", **{"\u001b[31m\u202emore": 1}))
    assert results == [
        "entry 1 (lost): does not have its form: body.attempt is '1': Input should be a valid integer; "
        "body.more is unknown"
    ]
    again = Trail(tmp_path / "trail.sqlite", "small")
    with pytest.raises(AuditDamage, match="does not have its form"):
        again.verify_chain()
    again.close()


def test_a_version_that_never_was_is_found(tmp_path: Path) -> None:
    path = tmp_path / "trail.sqlite"
    trail = Trail(path, "small")
    append_json(trail, "open", "open", body_of("open"))
    append_json(trail, "lost", "lost/a", body_of("lost"))
    trail.close()
    rows, keys = rows_of(path), keys_of(path)
    last = entries_of(rows)[-1].model_copy(update={"version": 0})
    put(path, chained([last], keys, stored_entries=rows[:-1]), keys)
    assert walk_trail(read_trail(path)).damage[0].startswith("entry 1: unreadable (its version or its time")


def test_a_newer_version_is_kept(tmp_path: Path) -> None:
    assert forged(tmp_path / "trail.sqlite", version=7, body={"anything": 1}) == []
