"""Plug-ins: identified by their files, bounded in time, refused when they changed; tasks mean what they say."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sessions.runtime import wiring
from specs.session.reviewer_vendor import vendor_of
from specs.stages.base.artifacts import Item
from specs.system import plugins
from specs.system.errors import PluginFault, UserError
from specs.system.plugins import require_unchanged
from testing.fixtures.sandbox import needs_sandbox
from training.rules.tasks import verifier, verifier_of_right
from training.rules.tasks.form import plugin_task
from training.rules.tasks.format_instructions import Judgement
from training.rules.tasks.task_module import TaskModule
from training.rules.tasks.verifier_cases import cases_of

ITEM = Item(id="i1", group="g", kind="k", prompt="Say yes.", constraint={"due": "yes"})
VERIFIER = """
from specs.stages.base.artifacts import Item
def verify(item, answer):
    if answer == "typo":
        raise AttributeError("no such name")
    return int(answer) == 1
def known_answers():
    return [(Item(id="a", group="g", kind="k", prompt="p", constraint={}), "1", True)]
"""


def distribution(
    folder: Path, name: str, module: str, code: str, group: str = "peergate.tasks", attribute: str = ""
) -> Path:
    """Write an installed distribution with one module, which its entry point of that name names."""
    about = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(f"[{group}]\n{module} = {module}{attribute}\n", encoding="utf-8")
    (about / "RECORD").write_text(f"{module}.py,,\n{about.name}/entry_points.txt,,\n", encoding="utf-8")
    return folder / f"{module}.py"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path, in which nothing is known from before."""
    monkeypatch.syspath_prepend(tmp_path)
    plugins._looked_up.cache_clear()  # pyright: ignore[reportPrivateUsage]
    plugin_task.cache_clear()
    vendor_of.cache_clear()
    return tmp_path


@pytest.fixture(autouse=True)
def forgotten() -> Any:
    yield
    plugins._looked_up.cache_clear()  # pyright: ignore[reportPrivateUsage]
    plugin_task.cache_clear()
    vendor_of.cache_clear()
    for name in ("ones", "slow", "twice", "words"):
        sys.modules.pop(name, None)


def test_a_changed_file_is_another_identity_and_what_was_registered_is_required(here: Path) -> None:
    source = distribution(here, "acme-ones", "ones", VERIFIER)
    point = plugins.find("peergate.tasks", "ones")
    assert point is not None
    before = plugins.identity(point)
    registered = {"peergate.tasks ones": before}
    assert before.startswith("acme-ones 1.0 sha256:")
    require_unchanged(registered)
    source.write_text(VERIFIER.replace("== 1", "== 2"), encoding="utf-8")
    assert plugins.identity(point) != before
    with pytest.raises(PluginFault, match=r"peergate.tasks ones is acme-ones 1.0 .*, registered was"):
        require_unchanged(registered)
    with pytest.raises(PluginFault, match="is not installed"):
        require_unchanged({"peergate.tasks zeros": before})
    assert any(name.startswith("peergate.tasks ones") for name in plugins.identities())


def test_a_name_that_two_distributions_bring_is_refused(here: Path) -> None:
    distribution(here, "acme-one", "twice", VERIFIER)
    distribution(here, "acme-two", "twice", VERIFIER)
    with pytest.raises(PluginFault, match=r"provided by acme-one 1\.0 and acme-two 1\.0"):
        plugins.find("peergate.tasks", "twice")


def test_what_hangs_is_given_up_and_what_imports_torch_is_refused() -> None:
    began = time.monotonic()
    with pytest.raises(PluginFault, match=r"it takes more than 0\.2 s"):
        plugins.run_bounded(lambda: time.sleep(60), "slow 1.0", seconds=0.2)
    assert time.monotonic() - began < 20

    with pytest.raises(PluginFault, match="it imports trl"):
        plugins.run_bounded(lambda: import_module("trl.nothing_of_this_name"), "heavy 1.0")
    assert not [protocol for protocol in sys.meta_path if type(protocol).__name__ == "_WithoutHeavy"]


@needs_sandbox
def test_a_task_of_another_distribution_says_yes_or_no_and_a_typo_is_neither(here: Path) -> None:
    distribution(here, "acme-ones", "ones", VERIFIER)
    judge, strict = verifier("ones"), verifier_of_right("ones")
    assert judge(ITEM, "1") == Judgement(True) and judge(ITEM, "2") == Judgement(False)
    assert not judge(ITEM, "one").passed
    with pytest.raises(PluginFault, match="breaks on the known right answer 'one': ValueError: invalid literal"):
        strict(ITEM, "one")
    with pytest.raises(PluginFault, match="its verifier breaks on item 'i1': AttributeError: no such name"):
        judge(ITEM, "typo")
    assert [(case.output, case.good) for case in cases_of("ones")] == [("1", True)]
    with pytest.raises(KeyError):
        verifier("twos")


def test_an_answer_that_is_neither_true_nor_false_is_refused() -> None:
    task = TaskModule(SimpleNamespace(verify=lambda item, answer: "yes"), "acme 1.0")  # pyright: ignore[reportUnknownLambdaType]
    with pytest.raises(PluginFault, match="returns a str, not True or False"):
        task.verify(ITEM, "1")
    with pytest.raises(PluginFault, match="has no function verify"):
        TaskModule(SimpleNamespace(), "acme 1.0")


@pytest.mark.parametrize("name", ["local", "ray", "skypilot"])
def test_the_name_of_a_launcher_of_peergate_cannot_be_taken_over(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(*_: str) -> None:
        raise AssertionError("a plug-in was looked up")

    monkeypatch.setattr(plugins, "find", taken)
    # Its package or its place may be missing, which is that launcher's own answer.
    with suppress(UserError, ImportError):
        wiring._make_named_launcher(name, tmp_path)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(AssertionError, match="looked up"):
        wiring._make_named_launcher("elsewhere", tmp_path)  # pyright: ignore[reportPrivateUsage]
