"""Every mutation of a good checkpoint is found, with the right name, and the good one is not flagged."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from specs.system.digests import digest_file
from testing.factories.mutated_checkpoints import HEALTHY, MUTATIONS, WEIGHTS, doubled_begin, flipped, nudged, own_begin
from testing.fixtures.tiny_training import tiny_checkpoint
from training.rules.packaging.checkpoint_folder import CheckpointFolder
from training.rules.packaging.ship_rules import check_files
from training.rules.packaging.tokenizer_rules import template as flaws_of_template


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("good") / "model")


@pytest.fixture(scope="module")
def base(good: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nudged(Path(shutil.copytree(good, tmp_path_factory.mktemp("base") / "model")))


def list_flaws(folder: Path, base: Path | None) -> set[str]:
    return {f"{flaw.layer}.{flaw.name}" for outcome in check_files(folder, base) for flaw in outcome.flaws}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_found_by_its_name(name: str, good: Path, base: Path, tmp_path: Path) -> None:
    mutation = MUTATIONS[name]
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    mutation.spoil(folder)
    assert list_flaws(folder, base if mutation.base else None) == mutation.flaws
    # With the base more may be found, but never less.
    assert list_flaws(folder, base) >= mutation.flaws


@pytest.mark.parametrize("name", HEALTHY)
def test_a_good_checkpoint_has_no_flaw(name: str, good: Path, base: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    HEALTHY[name](folder)
    outcomes = check_files(folder, base)
    assert [flaw.line() for outcome in outcomes for flaw in outcome.flaws] == []
    run = {outcome.layer for outcome in outcomes if outcome.status == "PASS"}
    assert run >= {"structure", "config", "weights", "tokenizer", "template", "generation", "lineage"}


def test_a_first_token_that_the_base_writes_twice_too_is_no_fault(good: Path, base: Path, tmp_path: Path) -> None:
    folder, twice = (Path(shutil.copytree(made, tmp_path / name)) for made, name in ((good, "model"), (base, "base")))
    doubled_begin("a template")(folder)
    assert list_flaws(folder, base) >= {"template.begin_twice"}
    doubled_begin("a template")(twice)
    assert list_flaws(folder, twice) == set()


def test_a_first_token_that_the_base_does_not_write_twice_is_a_fault(good: Path, base: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    own_begin(folder)
    assert list_flaws(folder, None) == set()
    # Without the base it could be Llama 3.
    assert "template.begin_twice" in list_flaws(folder, base)


def test_models_are_published_with_a_first_token_in_template_and_tokenizer(good: Path, tmp_path: Path) -> None:
    """TRL ships templates of many models: those of Llama 3, Gemma, DeepSeek, Command R and others write the token."""
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    own_begin(folder)
    library = find_spec("trl")
    assert library is not None and library.origin is not None
    published = Path(library.origin).parent / "chat_templates"
    writing: set[str] = set()
    for path in published.glob("*.jinja"):
        text = path.read_text(encoding="utf-8")
        (folder / "chat_template.jinja").write_text(text, encoding="utf-8")
        assert begin_flaws(folder) == [], path.name
        # Training that puts one more before a text that begins with it is refused without a base.
        (folder / "chat_template.jinja").write_text("{{ bos_token }}" + text, encoding="utf-8")
        writing |= {path.stem} if begin_flaws(folder) else set()
    assert writing == {path.stem for path in published.glob("*.jinja") if "bos_token" in path.read_text("utf-8")}
    assert writing > {"llama3", "llama3_1", "llama3_2", "gemma", "gemma3", "deepseekv3", "cohere", "lfm2"}


def begin_flaws(folder: Path) -> list[str]:
    return [flaw.name for flaw in flaws_of_template(CheckpointFolder(folder)) if flaw.name == "begin_twice"]


def test_a_bit_that_leaves_a_possible_weight_is_found_by_its_digest_alone(good: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    listed = {path.name: digest_file(path) for path in good.iterdir()}
    assert all(outcome.status != "FAIL" for outcome in check_files(folder, None, listed))
    flipped(3)(folder)
    assert list_flaws(folder, good) == set()
    (digests,) = [outcome for outcome in check_files(folder, good, listed) if outcome.layer == "digests"]
    assert [(flaw.name, flaw.file) for flaw in digests.flaws] == [("changed", f"'{WEIGHTS}'")]
    (folder / WEIGHTS).unlink()
    (folder / "notes.txt").touch()
    (digests,) = [outcome for outcome in check_files(folder, good, listed) if outcome.layer == "digests"]
    assert sorted(flaw.name for flaw in digests.flaws) == ["missing", "unlisted"]


def test_a_model_of_another_family_is_not_taken_for_checked(good: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    config = (folder / "config.json").read_text(encoding="utf-8")
    (folder / "config.json").write_text(config.replace('"llama"', '"mamba"'), encoding="utf-8")
    states = {outcome.layer: (outcome.status, outcome.why) for outcome in check_files(folder)}
    assert states["config"][0] == states["weights"][0] == "NOT_RUN"
    assert "unknown model_type 'mamba'" in states["config"][1]
