"""`peergate ship check` as a person calls it: real files, and real processes that load them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sessions.exports.shipping.release import RELEASE, read_release, write_release
from testing.factories.mutated_checkpoints import MUTATIONS, WEIGHTS, flipped, nudged
from testing.fixtures.command_sessions import called
from testing.fixtures.small_text import small_model
from training.rules.packaging.bounded_json import WrongFile


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("good") / "model", chat=True)


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "model"))


def states(stdout: str) -> dict[str, str]:
    return {layer["layer"]: layer["status"] for layer in json.loads(stdout)["layers"]}


def signed(folder: Path) -> str:
    """Sign a folder with a key of its own, and return the id of the key."""
    from reviews.trail.chain.keys import create_key, load_key

    create_key(folder.parent / "key.pem")
    return write_release(folder, {"session": "small"}, load_key(folder.parent / "key.pem")).key_id


def test_a_good_folder_passes_and_what_is_not_run_is_said(folder: Path) -> None:
    base = nudged(Path(shutil.copytree(folder, folder.parent / "base")))
    done = called("ship", "check", folder, "--files-only", "--base", base, "--json")
    assert done.returncode == 0, done.stderr
    results = states(done.stdout)
    assert {name for name, state in results.items() if state == "NOT_RUN"} == {"training", "digests", "gguf"}
    plain = called("ship", "check", folder, "--files-only")
    lines = plain.stdout.splitlines()
    assert "NOT_RUN  lineage: no base is given" in lines
    assert "PASS     structure: every file is there, and none can run code" in lines
    assert lines[-1] == f"{folder}: no fault was found; not looked at: training, lineage, digests, gguf"


def test_a_layer_that_applies_and_could_not_be_run_ends_with_4(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_bytes()) | {"model_type": "mamba"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    done = called("ship", "check", folder, "--files-only")
    assert done.returncode == 4
    assert "unknown whether it can be used, these could not be compared: config, weights" in done.stdout


@pytest.mark.slow
@pytest.mark.integration
def test_fresh_processes_answer_alike_and_have_a_rate(folder: Path) -> None:
    done = called("ship", "check", folder, "--json")
    assert done.returncode == 0, done.stdout
    assert states(done.stdout)["reload"] == states(done.stdout)["throughput"] == "PASS"
    assert "tokens a second here, no --floor is given" in done.stdout
    slow = called("ship", "check", folder, "--floor", "1e9", "--json")
    assert slow.returncode == 3 and states(slow.stdout)["throughput"] == "FAIL"


@pytest.mark.integration
def test_what_only_loading_shows_is_found(folder: Path) -> None:
    """A tokenizer that no library reads passes the rules on files; a family that is unknown here loads at random."""
    path = folder / "tokenizer.json"
    data = json.loads(path.read_bytes())
    path.write_text(json.dumps(data | {"decoder": {"type": "Unheard"}}), encoding="utf-8")
    done = called("ship", "check", folder, "--json")
    assert done.returncode == 3 and states(done.stdout)["reload"] == "FAIL"
    assert states(done.stdout)["throughput"] == "NOT_RUN"


def _unasked(folder: Path, floor: float) -> None:
    raise AssertionError(f"{folder} was loaded")


@pytest.mark.parametrize("name", ["a pickle named safetensors", "hidden_size is missing", "NaN"])
def test_what_is_wrong_names_layer_file_and_mend_and_nothing_is_loaded(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MUTATIONS[name].spoil(folder)
    monkeypatch.setattr("sessions.exports.shipping.reload_check.check_reload", _unasked)
    done = called("ship", "check", folder)
    assert done.returncode == 3
    layer = min(MUTATIONS[name].flaws).split(".")[0]
    lines = done.stdout.splitlines()
    at = lines.index(f"FAIL     {layer}")
    assert lines[at + 1].startswith("         ") and lines[at + 2].startswith("           ")
    assert "NOT_RUN  reload: its files are not whole" in lines
    assert lines[-1].startswith(f"{folder}: do not use it before this is fixed: ") and layer in lines[-1]


def test_a_signed_list_finds_a_bit_that_nothing_else_does(folder: Path) -> None:
    key = signed(folder)
    done = called("ship", "check", folder, "--files-only", "--key", key)
    assert done.returncode == 0 and f"signed by {key}" in done.stdout, done.stdout
    assert called("ship", "check", folder, "--files-only", "--key", "0" * 64).returncode == 3
    flipped(3)(folder)
    done = called("ship", "check", folder, "--files-only")
    assert done.returncode == 3 and f"'{WEIGHTS}': is sha256:" in done.stdout


def test_a_list_that_was_changed_or_is_missing_is_no_signed_one(folder: Path) -> None:
    signed(folder)
    whole = json.loads((folder / RELEASE).read_bytes())
    for change in (
        {"payload": whole["payload"][:-8] + "AAAAAAAA"},
        {"payloadType": "text/plain"},
        {"signatures": []},
        {"signatures": [{"sig": "AAAA"}]},
    ):
        (folder / RELEASE).write_text(json.dumps(whole | change), encoding="utf-8")
        with pytest.raises(WrongFile):
            read_release(folder)
    assert called("ship", "check", folder, "--files-only").returncode == 3
    (folder / RELEASE).unlink()
    assert read_release(folder) is None
    assert called("ship", "check", folder, "--files-only", "--key", "0" * 64).returncode == 3


def test_what_is_no_folder_is_a_usage_error(tmp_path: Path) -> None:
    done = called("ship", "check", tmp_path / "none")
    assert done.returncode == 2 and "is not a folder" in done.stderr


def test_the_run_folder_of_a_session_leads_to_the_command_that_copies_its_model(closed_quick: Path) -> None:
    done = called("ship", "check", closed_quick, "--files-only")
    assert done.returncode == 2 and not done.stdout
    assert f"`peergate get model {closed_quick.name} FOLDER` copies its model" in done.stderr


def test_of_many_faults_of_a_layer_some_are_listed_and_the_rest_is_counted(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"code_{number:02d}.py").write_text("", encoding="utf-8")
    done = called("ship", "check", tmp_path, "--files-only")
    assert done.returncode == 3 and 0 < done.stdout.count("can run code") <= 12
    assert "more (--json lists all)" in done.stdout
