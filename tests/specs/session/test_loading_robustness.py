from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specs.loading.loading import load_constitution, load_spec
from specs.session.session_spec import ResolvedSpec
from specs.system.errors import SpecError
from testing.factories.spec_files import CONSTITUTION, SPEC, write_spec

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

FRAGMENTS = st.sampled_from(
    [
        "'",
        '"',
        "[",
        "]",
        "{",
        "}",
        ": ",
        "- ",
        "&a ",
        "*a",
        "!!int ",
        "? ",
        "| ",
        "> ",
        "%",
        "@",
        "\t",
        "\n  ",
        "#",
        "~",
        ".nan",
        "1e999",
        "0x",
        "9" * 5000,
        "2026-01-01",
        "<<: ",
        "\\x00",
        "\u2028",
        "\ud7ff",
        "---\n",
        "...\n",
        "null",
        "-1",
    ]
)


def load_bytes(raw: bytes) -> ResolvedSpec | SpecError:
    """Load a spec next to good data files; anything but success or a SpecError escapes."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_spec(Path(folder))
        path.write_bytes(raw)
        try:
            return load_spec(path)
        except SpecError as error:
            assert error.problems
            for problem in error.problems:
                assert problem.line >= 1
                assert problem.column >= 1
                assert problem.message
                assert "\n" not in str(problem)
            return error


def test_the_unchanged_text_loads() -> None:
    with tempfile.TemporaryDirectory() as folder:
        raw = write_spec(Path(folder)).read_bytes()
    assert isinstance(load_bytes(raw), ResolvedSpec)


@QUICK
@given(st.binary(max_size=200))
def test_any_bytes_are_a_spec_or_a_spec_error(raw: bytes) -> None:
    assert isinstance(load_bytes(raw), SpecError)


@QUICK
@given(st.text(alphabet=st.sampled_from(list("ab:-[]{}&*!|>'\"%@`#?, \n\t01.e~\\xUu<=\x85\u2029")), max_size=120))
def test_any_text_of_yaml_characters_is_a_spec_error(text: str) -> None:
    assert isinstance(load_bytes(text.encode()), SpecError)


@QUICK
@given(st.data())
def test_a_damaged_line_never_ends_in_a_traceback(data: st.DataObject) -> None:
    lines = [*map(str, SPEC.split("\n"))]
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(st.integers(0, len(lines) - 1))
        action = data.draw(st.sampled_from(["delete", "duplicate", "insert", "cut", "indent", "swap"]))
        at = data.draw(st.integers(0, len(lines[index])))
        if action == "delete" and len(lines) > 1:
            del lines[index]
        elif action == "duplicate":
            lines.insert(index, lines[index])
        elif action == "insert":
            lines[index] = lines[index][:at] + data.draw(FRAGMENTS) + lines[index][at:]
        elif action == "cut":
            lines[index] = lines[index][:at]
        elif action == "indent":
            lines[index] = "  " + lines[index]
        else:
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[index], lines[other] = lines[other], lines[index]
    load_bytes("\n".join(lines).encode("utf-8"))


@QUICK
@given(st.data())
def test_a_value_of_any_other_type_never_ends_in_a_traceback(data: st.DataObject) -> None:
    lines = [line for line in SPEC.split("\n") if line]
    index = data.draw(st.integers(0, len(lines) - 1))
    key, colon, _ = lines[index].partition(":")
    value = data.draw(
        st.sampled_from(["", "3", "-1", "0.5", "true", "text", "[]", "[1, [2]]", "{}", "{a: {b: c}}", "'3'", "~", "''"])
    )
    lines[index] = f"{key}{colon} {value}" if colon else f"- {value}"
    load_bytes("\n".join(lines).encode("utf-8"))


@QUICK
@given(st.data())
def test_a_damaged_constitution_never_ends_in_a_traceback(data: st.DataObject) -> None:
    lines = [*map(str, CONSTITUTION.split("\n"))]
    index = data.draw(st.integers(0, len(lines) - 1))
    at = data.draw(st.integers(0, len(lines[index])))
    lines[index] = lines[index][:at] + data.draw(FRAGMENTS) + lines[index][at + data.draw(st.integers(0, 9)) :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "constitution.yaml"
        path.write_text("\n".join(lines), encoding="utf-8")
        try:
            load_constitution(path)
        except SpecError as error:
            assert error.problems


@QUICK
@given(st.binary(max_size=200))
def test_any_bytes_as_data_are_items_or_a_spec_error(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_spec(Path(folder))
        (Path(folder) / "prompts.jsonl").write_bytes(raw)
        try:
            load_spec(path)
        except SpecError as error:
            assert error.problems
