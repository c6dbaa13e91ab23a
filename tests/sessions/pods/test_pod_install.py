"""Peergate installed on a pod, from the wheel that is brought to it and an index of stand-ins for everything else."""

from __future__ import annotations

import sys
import zipfile
from importlib.metadata import distribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from sessions.pods import install
from sessions.pods.host_key import confirm
from sessions.pods.install import bundle_of
from sessions.pods.lifecycle import prepare, version_of
from sessions.pods.pod_checks import PodCheck
from sessions.pods.pod_file import read_pod_file
from sessions.pods.pod_record import place_of
from specs.loading.loading import load_spec
from specs.system.errors import BlockedError
from testing.fixtures.sshd_pod import MISSING, pod
from testing.fixtures.sshd_quick import TORCH, write_pod_file, write_quick_spec

pytestmark = [
    pytest.mark.integration,
    pytest.mark.nightly,
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]


def stand_in(folder: Path, name: str, files: dict[str, str]) -> None:
    """Write a wheel of the version that is installed here, with other files and no requirements."""
    number, plain = version(name).partition("+")[0], name.replace("-", "_")
    info = f"{plain}-{number}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{plain}-{number}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


def test_an_installation_is_whole_and_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = install.wheel_of_this()
    monkeypatch.setattr(install, "wheel_of_this", lambda: wheel)
    with pod(tmp_path / "pod") as machine:
        house = machine.durable / "wheelhouse"
        house.mkdir()
        wanted = [Requirement(requirement) for requirement in distribution("peergate").requires or []]
        names = {
            requirement.name
            for requirement in wanted
            if requirement.marker is None or requirement.marker.evaluate({"extra": "train"})
        }
        # What is not in the stand-ins is that of this machine: the wheel of Peergate comes before it on the path.
        real = next(text for text in sys.path if text.endswith("site-packages"))
        for name in sorted(names):
            files = {"torch/__init__.py": TORCH} if name == "torch" else {}
            stand_in(house, name, files | ({"zz.pth": f"{real}\n"} if name == "filelock" else {}))
        config = tmp_path / "pod" / "root" / "root" / ".config" / "pip"
        config.mkdir(parents=True)
        (config / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /durable/wheelhouse\n", "utf-8")
        file = read_pod_file(write_pod_file(tmp_path, machine, None))
        path = write_quick_spec(tmp_path / "spec")
        place, resolved = place_of(tmp_path / "pods", "small"), load_spec(path)
        connection = place.connection(file)
        confirm(connection, (machine.fingerprint,), None)
        checks: list[PodCheck] = []
        try:
            record = prepare(connection, place, file, resolved, bundle_of(path, resolved), checks.append)
            assert record.python.startswith(f"{machine.root}/environments/"), checks
            mark = machine.durable / Path(record.python).relative_to("/durable").parents[1] / "peergate-installed.json"
            report = version_of(connection, record.python)
            assert isinstance(report, dict) and report["protocol"] == 1
            where = connection.run(f"{record.python} -P -c 'import sessions; print(sessions.__file__)'").out.decode()
            assert where.startswith(f"{machine.root}/environments/"), "the code of the wheel runs, not another one"
            made = mark.stat().st_mtime_ns
            prepare(connection, place, file, resolved, bundle_of(path, resolved), checks.append)
            assert mark.stat().st_mtime_ns == made
            # Broken off before the mark: what is there is no environment, and is begun again.
            mark.unlink()
            (mark.parent / "bin" / "half").touch()
            prepare(connection, place, file, resolved, bundle_of(path, resolved), checks.append)
            assert mark.exists() and not (mark.parent / "bin" / "half").exists()
            for file_path in house.glob("torch*"):
                file_path.unlink()
            mark.unlink()
            with pytest.raises(BlockedError, match="could not be installed"):
                prepare(connection, place, file, resolved, bundle_of(path, resolved), checks.append)
            assert not mark.parent.exists()
        finally:
            connection.close()
