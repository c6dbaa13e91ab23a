from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specs.session.design import Budget
from specs.system import digests
from specs.system.digests import canonical_bytes, digest_bytes, digest_file, digest_path, digest_tree, digest_value

KEYS = st.text(max_size=8).filter(lambda text: not any(0xD800 <= ord(letter) <= 0xDFFF for letter in text))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(-(2.0**53), 2.0**53, exclude_min=True, exclude_max=True)
    | KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
QUICK = settings(max_examples=100, deadline=None)


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(inner) for key, inner in reversed(list(value.items()))}
    return [reordered(inner) for inner in value] if isinstance(value, list) else value


@QUICK
@given(JSON)
def test_key_order_and_layout_never_change_a_digest(value: Any) -> None:
    assert digest_value(reordered(value)) == digest_value(value)
    spaced = json.dumps(reordered(value), indent=3, ensure_ascii=False)
    assert digest_value(json.loads(spaced)) == digest_value(value)


@QUICK
@given(JSON)
def test_canonical_bytes_are_json_of_the_same_value_and_a_fixed_point(value: Any) -> None:
    read = json.loads(canonical_bytes(value))
    assert read == value
    assert canonical_bytes(read) == canonical_bytes(value)


class Word(str): ...


def short_float(digits: int, exponent: int) -> float:
    return float(f"{digits}e{exponent}")


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats()
    | st.builds(short_float, st.integers(-999, 999), st.integers(-12, 25))
    | st.text(max_size=4)
    | st.builds(Word, st.text(max_size=2)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(st.text(max_size=2) | st.integers(0, 2), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(ANY)
@example({"\U0001f600": 1, "\ufb33": 2})
@example([1.0, -0.0, 0.1, 1e-4, 9.9e-5, 1e15, 1e16, 1e21, 123456789012345.6])
@example({"a": 2**53 - 1})
@example([2.0**53, {"a": 2**53 - 1.0}])
@example({"\x7f\x1f\u2028": '"\\/\b\f\n\r\t'})
@example({"\0": 1e-5, "\x001": 2.5e-7, "c": [-1.5e-6, 5e-324]})
@example(["\x001", 1e-5, '"\x001"', "\\u00001"])
@example(["\ud800"])
@example({1: 2})
@example([{True: 1}])
def test_all_is_written_and_refused_as_rfc8785_does(value: Any) -> None:
    try:
        expected = rfc8785.dumps(value)
    except rfc8785.CanonicalizationError:
        with pytest.raises(ValueError, match="cannot be written as canonical JSON"):
            canonical_bytes(value)
    else:
        assert canonical_bytes(value) == expected


def test_what_sessions_write_takes_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(rfc8785, "dumps")
    value = {"b": [1.0, 0.5, -3, True, None, ("é", {}), 2.5e-5, 1e-7], "a": "…"}
    assert canonical_bytes(value) == '{"a":"…","b":[1,0.5,-3,true,null,["é",{}],0.000025,1e-7]}'.encode()


@QUICK
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_survives_bit_for_bit_up_to_the_sign_of_zero(value: float) -> None:
    assert float(json.loads(canonical_bytes(value))) == value


def test_an_integral_float_and_the_integer_have_one_digest() -> None:
    assert digest_value({"a": 1.0}) == digest_value({"a": 1})
    assert digest_value(1e-5) == digest_value(0.00001)
    assert digest_value(-0.0) == digest_value(0)


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 2**53, -(2**53), {"a": [math.nan]}, {1: 2}, {"a": object()}]
)
def test_what_canonical_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="cannot be written as canonical JSON"):
        digest_value(value)


def test_floats_from_2_to_the_53_on_are_written_as_integers_that_only_a_typed_contract_reads_back() -> None:
    assert canonical_bytes(2.0**53) == b"9007199254740992"
    written = Budget(max_cost_usd=2.0**60, machine_usd_per_hour=0, max_hours=1)
    assert Budget.model_validate_json(written.canonical(), strict=True).canonical() == written.canonical()


def test_the_largest_integers_are_accepted() -> None:
    assert canonical_bytes([2**53 - 1, -(2**53) + 1]) == b"[9007199254740991,-9007199254740991]"


def test_keys_are_sorted_by_utf_16_code_units_as_rfc_8785_says() -> None:
    value = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\x80": 6, "\u00f6": 7}
    assert list(json.loads(canonical_bytes(value))) == ["\r", "1", "\x80", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


def test_the_digest_of_known_bytes_is_known() -> None:
    empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest_bytes(b"") == empty
    assert digest_value({}) == digest_bytes(b"{}")


def test_a_tree_digest_depends_on_names_and_bytes_and_on_nothing_else(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder / "inner").mkdir(parents=True)
    for folder, order in (("a", ["x", "inner/y"]), ("b", ["inner/y", "x"])):
        for name in order:
            (tmp_path / folder / name).write_text(name, encoding="utf-8")
    (tmp_path / "b" / "empty").mkdir()
    assert digest_tree(tmp_path / "a") == digest_tree(tmp_path / "b") == digest_path(tmp_path / "a")
    before = digest_tree(tmp_path / "a")
    (tmp_path / "a" / "x").rename(tmp_path / "a" / "z")
    renamed = digest_tree(tmp_path / "a")
    (tmp_path / "a" / "z").write_text("other", encoding="utf-8")
    assert len({before, renamed, digest_tree(tmp_path / "a")}) == 3


def test_a_large_tree_has_the_digest_of_a_small_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        (tmp_path / f"{number}").write_bytes(bytes([number]) * 1000 * (40 - number))
    small = digest_tree(tmp_path)
    monkeypatch.setattr(digests, "_LARGE", 0)
    assert digest_tree(tmp_path) == small
    (tmp_path / "7").write_bytes(b"")
    assert digest_tree(tmp_path) != small


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 3 * 4096, 10_000])
def test_a_file_that_is_read_in_pieces_has_the_digest_of_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(digests, "_AT_ONCE", 1)
    data = bytes(number % 251 for number in range(size))
    (tmp_path / "file").write_bytes(data)
    assert digest_file(tmp_path / "file") == digest_bytes(data)


def test_a_tree_with_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ValueError, match="is a symbolic link"):
        digest_tree(tmp_path)


def test_a_tree_digest_needs_a_folder_and_a_path_digest_takes_both(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    with pytest.raises(NotADirectoryError):
        digest_tree(file)
    assert digest_path(file) == digest_file(file) == digest_bytes(b"abc")
