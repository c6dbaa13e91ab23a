"""`peergate pod up` on real machines that are not fit: each says what is wrong and what helps, and nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.pods.host_key import confirm
from sessions.pods.install import bundle_of
from sessions.pods.lifecycle import prepare
from sessions.pods.pod_checks import PodCheck
from sessions.pods.pod_file import read_pod_file
from sessions.pods.pod_record import place_of
from specs.loading.loading import load_spec
from specs.system.errors import BlockedError, UserError
from testing.fixtures.sshd_pod import MISSING, Pod, pod
from testing.fixtures.sshd_quick import plant_environment, write_pod_file, write_quick_spec

pytestmark = [pytest.mark.integration, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    with pod(tmp_path_factory.mktemp("pod")) as result:
        yield result


def up(folder: Path, machine: Pod, python: str | None, *lines: str, spec: Path | None = None) -> tuple[str, str]:
    """Try `pod up` without its process; return the checks that are not PASS, and the error."""
    file = read_pod_file(write_pod_file(folder, machine, python, *lines))
    path = spec or write_quick_spec(folder / "spec")
    place, resolved = place_of(folder / "pods", "small"), load_spec(path)
    connection = place.connection(file)
    confirm(connection, (machine.fingerprint,), None)
    checks: list[PodCheck] = []
    try:
        with pytest.raises((BlockedError, UserError)) as caught:
            prepare(connection, place, file, resolved, bundle_of(path, resolved), checks.append)
    finally:
        connection.close()
    return "\n".join(f"{check.id}: {check.detail}; {check.hint}" for check in checks if check.status != "PASS"), str(
        caught.value
    )


def test_a_root_that_cannot_be_written_or_is_full_or_in_memory(machine: Pod, tmp_path: Path) -> None:
    python = plant_environment(machine)
    output, error = up(tmp_path, machine, python, "root: /proc/peergate")
    assert "write: /proc/peergate cannot be written: FileNotFoundError" in output
    assert "make room, or name another root" in error and "nothing was installed or started after it" in error
    output, _ = up(tmp_path, machine, python, "root: /full/peergate")
    assert "write: /full/peergate cannot be written: OSError" in output and "No space left" in output
    output, _ = up(tmp_path, machine, python, "root: /dev/shm/peergate")
    assert "lies in memory (tmpfs): a restart loses it" in output
    output, _ = up(tmp_path, machine, python, "min_disk_gb: 1e6")
    assert "GB are free, the pod file wants 1e+06" in output
    assert not machine.seen.exists(), "nothing is left there"


@pytest.mark.slow
def test_a_machine_without_gpu_hub_or_torch(machine: Pod, tmp_path: Path) -> None:
    python = plant_environment(machine)
    output, _ = up(tmp_path, machine, python, "gpus: 1")
    assert "gpu: 0 GPUs" in output and "rent another machine" in output
    hub = write_quick_spec(tmp_path / "hub", ('source: "path:model"', 'source: "hub:lab/none"'))
    output, _ = up(tmp_path, machine, python, spec=hub)
    assert "no snapshot of lab/none there, and the hub is not reached" in output
    hangs = plant_environment(machine, "hangs", "import time\ntime.sleep(600)\n")
    output, _ = up(tmp_path, machine, hangs, "torch_import_s: 1.0")
    assert "torch: importing torch did not end within 1 s" in output
    assert not machine.processes("import json, torch"), "the import that hung was ended"
    broken = plant_environment(machine, "broken", "raise ImportError('libcudart.so.12')\n")
    output, _ = up(tmp_path, machine, broken)
    assert "torch: torch cannot be imported: ImportError: libcudart.so.12" in output
    output, _ = up(tmp_path, machine, "/usr/bin/python3")
    assert "peergate: it does not run there" in output and "sessions" in output
    assert not machine.seen.exists(), "nothing is left there"


def test_a_machine_without_python(tmp_path: Path) -> None:
    with pod(tmp_path / "pod") as machine:
        (tmp_path / "pod" / "root" / "root" / ".bashrc").write_text("PATH=/nowhere\n", encoding="utf-8")
        output, error = up(tmp_path, machine, None)
        assert "python: none of python3.13" in output and "install Python 3.11 or newer" in error


def test_the_named_interpreter_probes_the_machine(tmp_path: Path) -> None:
    """Where the machine's own Python is too old or missing, that of ``environment:`` is asked, and no other."""
    with pod(tmp_path / "pod") as machine:
        python = plant_environment(machine, "broken", "raise ImportError('libcudart.so.12')\n")
        (tmp_path / "pod" / "root" / "root" / ".bashrc").write_text("PATH=/nowhere\n", encoding="utf-8")
        output, _ = up(tmp_path, machine, python)
        assert "torch cannot be imported: ImportError: libcudart.so.12" in output, "it came as far as the environment"
        output, error = up(tmp_path, machine, "/opt/none/bin/python")
        assert "python: /opt/none/bin/python does not run there" in output and "environment:" in error


def test_an_installation_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pod(tmp_path / "pod") as machine:
        # No index: pip fails at once, as it does where the network of a pod is closed.
        config = tmp_path / "pod" / "root" / "root" / ".config" / "pip"
        config.mkdir(parents=True)
        (config / "pip.conf").write_text("[global]\nno-index = true\n", encoding="utf-8")
        output, error = up(tmp_path, machine, None)
        assert not output, output
        assert "Peergate could not be installed" in error and "torch==" in error and "nothing of it remains" in error
        environments = machine.seen / "environments"
        assert [path.suffix for path in environments.iterdir()] == [".lock"], "an environment is half there"


def test_another_session_of_the_same_name_is_not_taken_for_this_one(machine: Pod, tmp_path: Path) -> None:
    python = plant_environment(machine)
    trail = machine.seen / "runs" / "small" / "trail.sqlite"
    trail.parent.mkdir(parents=True)
    trail.touch()
    _, error = up(tmp_path, machine, python)
    assert "a session 'small' is on the pod already" in error
