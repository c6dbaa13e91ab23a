"""Packages follow from stages and parameters, by one function that every command uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessions.pods import lifecycle
from sessions.pods.install import bundle_of
from sessions.pods.pod_file import PodFile
from sessions.pods.pod_plan import shortfalls
from sessions.runtime import preflight
from specs.loading.loading import find_spec, list_profiles, list_shipped_specs, load_spec
from specs.session import needed_packages as needed
from specs.session.needed_packages import NeededPackage, missing_packages, needed_extras, sandboxed_parts
from specs.system.errors import BlockedError, UserError
from specs.system.extras import extra_with
from testing.factories.spec_files import write_spec
from testing.fixtures.command_sessions import called

SPECS = [(name, profile) for name in list_shipped_specs() for profile in (list_profiles(find_spec(name)) or (None,))]


def modules_of(spec: Any) -> set[str]:
    return {package.module for package in needed.needed_packages(spec)}


def stage_with(folder: Path, *changes: tuple[str, str]) -> Any:
    folder.mkdir(exist_ok=True)
    return load_spec(write_spec(folder, *changes)).spec


def test_shipped_specs_name_extras_that_exist() -> None:
    specs = [load_spec(find_spec(name), profile).spec for name, profile in SPECS]
    modules = {module for spec in specs for module in modules_of(spec)}
    # Asked once a module: each question reads the metadata of every installed package.
    assert {module for module in modules if extra_with(module) is None} == set()
    assert {needed_extras(spec)[0] for spec in specs} == {"train"}


def test_weights_of_four_bits_and_optimizers_of_eight_need_bitsandbytes() -> None:
    spec = load_spec(find_spec("cai_preferences"), "gpu80").spec
    assert "qlora" in needed_extras(spec) and "bitsandbytes" in modules_of(spec)
    plain = load_spec(find_spec("cai_preferences"), "cpu").spec
    assert "qlora" not in needed_extras(plain) and "bitsandbytes" not in modules_of(plain), "the negative control"


def test_exports_need_gguf_whatever_model_they_are_of() -> None:
    spec = load_spec(find_spec("demo")).spec
    hub = spec.model_copy(update={"model": spec.model.model_copy(update={"source": "hub:lab/model"})})
    assert "gguf" in needed_extras(hub) and "demo" not in needed_extras(hub)


def _without_bitsandbytes(name: str) -> str | None:
    return None if name == "bitsandbytes" else name


def _nothing(_: str) -> None:
    return None


def test_a_package_that_is_missing_here_is_said_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load_spec(find_spec("cai_preferences"), "gpu80").spec
    monkeypatch.setattr(needed, "find_spec", _without_bitsandbytes)
    assert {package.module for package in missing_packages(spec)} == {"bitsandbytes"}
    with pytest.raises(BlockedError, match="not installed: bitsandbytes") as error:
        preflight.require_packages(spec)
    assert error.value.hint is not None and "peergate[qlora]" in error.value.hint
    monkeypatch.setattr(needed, "find_spec", str)
    preflight.require_packages(spec)


def test_what_runs_elsewhere_needs_nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load_spec(find_spec("demo")).spec
    rented = [stage.model_copy(update={"launcher": "ray"}) for stage in spec.stages]
    monkeypatch.setattr(needed, "find_spec", _nothing)
    assert {package.where for package in missing_packages(spec.model_copy(update={"stages": tuple(rented)}))} == {
        "model"
    }


@pytest.mark.parametrize("name", ["plan", "install", "forecast"])
def test_every_command_asks_the_one_function(name: str) -> None:
    """A second list of extras would differ from the first before long."""
    from sessions.pods import install, pod_plan
    from sessions.runtime import preflight as forecast

    module = {"plan": pod_plan, "install": install, "forecast": forecast}[name]
    own = "missing_packages" if name == "forecast" else "needed_extras"
    assert getattr(module, own) is getattr(needed, own)
    assert not hasattr(module, "extras_of")


def test_a_plan_without_the_weights_is_a_sentence(tmp_path: Path) -> None:
    done = called("pod", "plan", "cai_preferences", "--profile", "gpu80", "--host", "gpu7.invalid")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "the folder with the weights of the model does not exist" in done.stderr
    path = find_spec("cai_preferences")
    with pytest.raises(UserError, match="weights of the model"):
        bundle_of(path, load_spec(path, "gpu80"))


def test_a_plan_says_that_the_pod_ends_the_session() -> None:
    spec = load_spec(find_spec("cai_preferences"), "gpu80").spec
    short = PodFile.model_validate({"host": "gpu7", "usd_per_hour": 2.69, "max_cost_usd": 40})
    (line,) = shortfalls(spec, short)
    assert "the pod ends after 14.9 h" in line and f"{spec.budget.max_cost_usd:g} USD" in line
    long = short.model_copy(update={"max_cost_usd": 10_000})
    assert shortfalls(spec, long) == []


def test_code_that_runs_in_a_sandbox_is_named(tmp_path: Path) -> None:
    assert sandboxed_parts(load_spec(find_spec("demo")).spec) == []
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "verify.py").write_text("def verify(item, answer):\n    return True\n", encoding="utf-8")
    own = stage_with(
        tmp_path / "own",
        ("task: format_instructions", "task: ./verify.py"),
        ("parameters: {temperature", "parameters: {worked_example: false, temperature"),
    )
    assert "verifier" in sandboxed_parts(own)


def test_weights_of_the_hub_are_fetched_at_the_revision_that_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert lifecycle.revision_here("lab/model") == ""
    ref = tmp_path / "models--lab--model" / "refs" / "main"
    ref.parent.mkdir(parents=True)
    ref.write_text("abc123", encoding="utf-8")
    assert lifecycle.revision_here("lab/model") == "abc123"


FAKE = """
import os
class HfApi:
    def model_info(self, name):
        return type("Info", (), {"sha": "newest"})()
def snapshot_download(name, revision):
    with open(os.environ["TOLD"], "a") as file:
        file.write(revision + "\\n")
"""


@pytest.mark.parametrize(("text", "fetched"), [("abc123", "abc123"), ("", "newest")])
def test_a_revision_that_a_pod_has_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, fetched: str
) -> None:
    import subprocess
    import sys

    library = tmp_path / "lib" / "huggingface_hub"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(FAKE, encoding="utf-8")
    (library / "constants.py").write_text(f"HF_HUB_CACHE = {str(tmp_path / 'hub')!r}\n", encoding="utf-8")
    path = tmp_path / "told"
    monkeypatch.setenv("TOLD", str(path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    for revision in (text, "another"):
        command = [sys.executable, "-c", lifecycle._FETCH, "lab/model", revision]  # pyright: ignore[reportPrivateUsage]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == f"revision {fetched}"
    assert path.read_text(encoding="utf-8").split() == [fetched, fetched]


def test_a_needed_package_says_who_asks_for_it() -> None:
    spec = load_spec(find_spec("cai_preferences"), "gpu80").spec
    needed_package = next(package for package in needed.needed_packages(spec) if package.module == "bitsandbytes")
    assert needed_package == NeededPackage("bitsandbytes", "qlora", needed_package.where) and spec.stage(
        needed_package.where
    ).kind in (
        "sft",
        "dpo",
    )
