"""Syntax of newer Python versions is named, and no file is called wrong for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reviews.requests.file_reading import FOR_RULES, RequestReader
from reviews.requests.rules.python_code import check_python
from reviews.requests.rules.rule_findings import RuleMaterial
from specs.stages.recipes.script_file import require_script
from specs.system.confinement.task_file import newer_version, syntax_fault
from specs.system.errors import UserError
from specs.system.masking import Masker

NEWER = [
    ("3.12", "type Pair = tuple[int, int]\n"),
    ("3.12", "type Pair[T] = tuple[T, T]\n"),
    ("3.12", "def first[T](items: list[T]) -> T:\n    return items[0]\n"),
    ("3.12", "class Box[T]:\n    pass\n"),
    ("3.12", 'print(f"{"inner"}")\n'),
    ("3.12", "print(f\"{'\\n'.join(names)}\")\n"),
    ("3.14", "try:\n    pass\nexcept ValueError, TypeError:\n    pass\n"),
    ("3.14", 'print(t"hello {name}")\n'),
]
WRONG = ["def f(:\n    pass\n", "x = (\n", "print 'a'\n", "if x = 1:\n    pass\n"]


def fault(text: str) -> SyntaxError:
    with pytest.raises(SyntaxError) as caught:
        compile(text, "a.py", "exec", dont_inherit=True)
    return caught.value


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python reads it")
@pytest.mark.parametrize(("version", "text"), NEWER)
def test_newer_syntax_is_named(version: str, text: str) -> None:
    error = fault(text)
    assert newer_version(error, text) == version
    assert f"needs Python {version} or newer" in syntax_fault(error, text)
    with pytest.raises(UserError, match=f"needs Python {version} or newer"):
        require_script(text)


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_in_every_version_is_said_to_be(text: str) -> None:
    error = fault(text)
    assert newer_version(error, text) == "" and syntax_fault(error, text).startswith("not valid Python")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python reads it")
def test_a_requested_review_does_not_judge_what_it_cannot_read(tmp_path: Path) -> None:
    for place, (_, text) in enumerate(NEWER):
        (tmp_path / f"{place}.py").write_text(text, encoding="utf-8")
    reader = RequestReader(Masker({}), lambda _: True, FOR_RULES)
    reader.add(str(tmp_path), "file")
    findings = check_python(RuleMaterial(reader.reading, reader.sources, lambda _: True, str))
    assert len(findings.not_judged) == len(NEWER) and not findings.issues
