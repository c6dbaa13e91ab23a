"""The page on installation and the container file name what there is: extras, files, the wheel, one command."""

from __future__ import annotations

import re
import tomllib

import pytest

from specs.system.home import HOME

PAGE = (HOME / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONTAINER = (HOME / "release" / "Containerfile").read_text(encoding="utf-8").replace("\\\n", "")
WHEEL = f"{PROJECT['name']}-{PROJECT['version']}-py3-none-any.whl"
(COMMAND,) = re.findall(r"^uv tool install .*$", PAGE, re.M)


@pytest.mark.parametrize("text", [PAGE, CONTAINER], ids=["page", "container"])
def test_every_extra_that_is_named_exists(text: str) -> None:
    brackets = re.findall(r"(?:peergate|\.)\[([\w,-]+)\]", text)
    cells = re.findall(r"^\| ((?:`[\w-]+`(?:, )?)+) \|", text.partition("| extra |")[2].partition("\n\n")[0], re.M)
    cells += re.findall(r"(?:the extra|\bAdd) (`[\w-]+`)|, (`mcp`) or another extra", text)
    named = {name for group in brackets for name in group.split(",")}
    named |= {name for cell in cells for name in re.findall(r"`([\w-]+)`", str(cell))}
    assert brackets and named <= PROJECT["optional-dependencies"].keys()


def test_the_container_installs_as_the_page_says() -> None:
    assert f"dist/{WHEEL}" in COMMAND
    (line,) = re.findall(r"^RUN (uv tool install .*)$", CONTAINER, re.M)
    # The image has one Python, and its wheel lies in /dist.
    ours = COMMAND.replace("--python 3.11 ", "").replace(f"$PWD/dist/{WHEEL}", "$(ls /dist/*.whl)")
    assert line.replace("--no-cache ", "").split() == ours.replace(" dist/", " /dist/").split()
    assert re.search(r"^FROM python:3\.11", CONTAINER, re.M)
    (pinned,) = re.findall(r"pip install --no-cache-dir (uv==[\d.]+)", CONTAINER)
    assert f"\n{pinned} " in (HOME / "requirements-release.txt").read_text(encoding="utf-8")


def test_make_release_leaves_the_files_that_both_name() -> None:
    made = (HOME / "Makefile").read_text(encoding="utf-8").partition("\nrelease:")[2].partition("\n\n")[0]
    copied = re.findall(r"^\tcp (.*) dist$", made, re.M)[0].split()
    assert all((HOME / name).is_file() for name in copied)
    files = {name.rpartition("/")[2] for name in copied}
    assert set(re.findall(r"(?:-c|--overrides) dist/(\S+)", COMMAND)) == files
    assert set(re.findall(r"dist/(\S+)", re.findall(r"^COPY (.*) /dist/$", CONTAINER, re.M)[0])) == files | {"*.whl"}
