"""What is decided before anything is connected to: pod files, addresses, plans, rules, the wheel that is brought."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sessions.pods import install, pod_checks, pod_plan
from sessions.pods.install import bundle_of
from sessions.pods.pod_file import PodFile, read_address, read_pod_file
from sessions.pods.protocol import PROTOCOL, Order, Rules
from sessions.pods.remote import probe
from sessions.pods.remote.keeper import why
from sessions.pods.remote.pod_layout import Layout
from specs.loading.loading import load_spec
from specs.session.needed_packages import NeededPackage, needed_extras
from specs.system.errors import SpecError, UserError
from specs.system.home import HOME
from testing.fixtures.sshd_quick import peergate, write_quick_spec

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("text", "destination", "port"),
    [("ada@gpu7.example:2222", "ada@gpu7.example", 2222), ("pod", "pod", None), ("root@[::1]:22", "root@::1", 22)],
)
def test_addresses(text: str, destination: str, port: int | None) -> None:
    address = read_address(text)
    assert (address.destination, address.port) == (destination, port)


@pytest.mark.parametrize(
    "text", ["-oProxyCommand=id", "a b", "ada@-x", "ada@", "host:0", "host:70000", "ho\nst", "a@b@c", "$(id)@h", ""]
)
def test_what_ssh_would_read_as_something_else_is_no_address(text: str) -> None:
    with pytest.raises(UserError, match="invalid pod address"):
        read_address(text)


@pytest.mark.parametrize(
    ("lines", "output"),
    [
        ("host: pod\nrot: /x\n", "2:1: rot: unknown key 'rot' (did you mean 'root'?)"),
        ("root: /x\n", "'host' is missing"),
        ("host: pod\nroot: relative\n", "2:7: root: "),
        ("host: pod\nroot: /x/../etc\n", "2:7: root: "),
        ("host: pod\nroot: '/x; rm -rf /'\n", "2:7: root: "),
        ("host: pod\nhost_key: SHA256:short\n", "2:11: host_key: "),
        ("host: pod\nmax_cost_usd: 3\n", "2:15: max_cost_usd: needs usd_per_hour"),
        ("host: pod\nidle_minutes: -1\n", "2:15: idle_minutes: idle_minutes must be above 0, got -1"),
    ],
)
def test_mistakes_in_a_pod_file_are_reported_with_their_place(tmp_path: Path, lines: str, output: str) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(lines, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        read_pod_file(path)
    assert output in str(caught.value)


def test_a_plan_says_what_happens_what_ends_the_pod_and_what_it_costs_at_most(tmp_path: Path) -> None:
    spec = write_quick_spec(tmp_path)
    pod = tmp_path / "pod.yaml"
    pod.write_text(
        "host: ada@gpu7\nusd_per_hour: 3\nmax_cost_usd: 12\nidle_minutes: 20\nshutdown: poweroff\ngpus: 2\n",
        encoding="utf-8",
    )
    done = peergate("pod", "plan", spec, "--pod", pod, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["cost"]["machine_usd"] == 12 and report["cost"]["session_usd"] == 10
    assert any("after 4.00 h" in end for end in report["ends"]) and any("`poweroff`" in end for end in report["ends"])
    assert any("2 GPUs" in step for step in report["steps"]) and report["keys"] == []
    both = peergate("pod", "plan", spec, "--pod", pod, "--host", "x")
    assert both.returncode == 2 and "no machine specified" in both.stderr


def test_only_keys_the_session_needs_are_named(tmp_path: Path) -> None:
    pair = ("reviewer: {vendor: checklist}", "reviewer: {vendor: anthropic, model: claude-sonnet-4-5}")
    resolved = load_spec(write_quick_spec(tmp_path, pair))
    assert pod_plan.keys_of(resolved.spec) == (["ANTHROPIC_API_KEY"], [])


def test_files_that_are_named_from_elsewhere_keep_their_places(tmp_path: Path) -> None:
    spec = write_quick_spec(tmp_path / "a" / "b")
    (tmp_path / "a" / "b" / "constitution.yaml").rename(tmp_path / "a" / "constitution.yaml")
    text = spec.read_text(encoding="utf-8")
    spec.write_text(text.replace("constitution: constitution.yaml", "constitution: ../constitution.yaml"), "utf-8")
    bundle = bundle_of(spec, load_spec(spec))
    assert (
        bundle.spec == "b/spec.yaml" and "constitution.yaml" in bundle.files and "b/model/config.json" in bundle.files
    )


def test_what_reviewers_read_first_goes_along(tmp_path: Path) -> None:
    (tmp_path / "method.md").write_text("Medians.", encoding="utf-8")
    spec = write_quick_spec(tmp_path, ("objective:", "reading: [method.md]\nobjective:"))
    assert "method.md" in bundle_of(spec, load_spec(spec)).files


# ---- where jobs run, and the model --------------------------------------------------------------------------


def test_a_task_of_lm_eval_goes_along_with_what_it_names_and_its_library(tmp_path: Path) -> None:
    folder = shutil.copytree(HOME / "docs" / "examples" / "opposites", tmp_path / "opposites")
    with (folder / "opposites.yaml").open("a", encoding="utf-8") as file:
        file.write("process_docs: !function marks.same\n")
    (folder / "marks.py").write_text("def same(docs):\n    return docs\n", encoding="utf-8")
    resolved = load_spec(folder / "lm_eval.yaml")
    assert {"lm_eval.yaml", "opposites.yaml", "marks.py"} <= set(bundle_of(folder / "lm_eval.yaml", resolved).files)
    assert "lm-eval" in needed_extras(resolved.spec) and "lm-eval" not in needed_extras(
        load_spec(folder / "spec.yaml").spec
    )


def test_ray_is_installed_where_a_stage_runs_on_it(tmp_path: Path) -> None:
    assert "ray" not in needed_extras(load_spec(write_quick_spec(tmp_path / "a")).spec)
    spec = write_quick_spec(tmp_path / "b", ("  - name: base\n", "  - name: base\n    launcher: ray\n"))
    assert "ray" in needed_extras(load_spec(spec).spec)
    done = peergate("pod", "plan", spec, "--host", "gpu7", "--json")
    assert done.returncode == 0 and any(
        "install Peergate [train, ray" in step for step in json.loads(done.stdout)["steps"]
    )


@pytest.mark.parametrize(
    ("there", "status"), [({"modules": ["ray", "torch"]}, "PASS"), ({"modules": ["torch"]}, "FAIL"), ({}, "FAIL")]
)
def test_an_environment_has_to_have_what_the_stages_need(there: dict[str, Any], status: str) -> None:
    version = {"protocol": PROTOCOL, "version": "1", "measuring": "m"} | there
    pod, report = PodFile(host="gpu7"), {"torch": {"hung": True}}
    needed = [NeededPackage("torch", "train", "train"), NeededPackage("ray", "ray", "base")]
    checks = {
        check.id: check for check in pod_checks.environment(report, version, "m", pod, plugins={}, packages=needed)
    }
    assert checks["packages"].status == status and checks["peergate"].status == "PASS"
    if status == "FAIL":
        assert "ray (base)" in checks["packages"].detail and "ray" in checks["packages"].hint
    assert "packages" not in {check.id for check in pod_checks.environment(report, version, "m", pod, plugins={})}


@pytest.mark.parametrize(
    ("there", "status"), [({"sandbox": ""}, "PASS"), ({"sandbox": "no bwrap"}, "FAIL"), ({}, "FAIL")]
)
def test_a_pod_has_to_have_bubblewrap_where_code_runs_in_it(there: dict[str, Any], status: str) -> None:
    version = {"protocol": PROTOCOL, "version": "1", "measuring": "m"} | there
    pod, report = PodFile(host="gpu7"), {"torch": {"hung": True}}
    checks = {
        check.id: check
        for check in pod_checks.environment(report, version, "m", pod, plugins={}, sandboxed=["verifier"])
    }
    assert checks["bubblewrap"].status == status
    if status == "FAIL":
        assert "verifier" in checks["bubblewrap"].detail and "bubblewrap" in checks["bubblewrap"].hint
    assert "bubblewrap" not in {check.id for check in pod_checks.environment(report, version, "m", pod, plugins={})}


@pytest.mark.parametrize("verb", ["plan", pytest.param("up", marks=pytest.mark.slow)])
def test_machines_are_not_rented_from_a_pod(tmp_path: Path, verb: str) -> None:
    capped = "    launcher: skypilot\n    resources: {max_usd_per_hour: 1}\n"
    spec = write_quick_spec(tmp_path, ("  - name: base\n", f"  - name: base\n{capped}"))
    done = peergate("pod", verb, spec, "--host", "gpu7.invalid")
    assert done.returncode == 2 and "stage 'base' has launcher 'skypilot'" in done.stderr


class Hub(BaseHTTPRequestHandler):
    """Knows one model."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/api/models/lab/model" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def snapshot_of(root: Path, files: dict[str, str], revision: str = "abc") -> Path:
    """Write a snapshot as huggingface_hub does: names are links into the folder of bytes."""
    model = root / "home" / ".cache" / "huggingface" / "hub" / "models--lab--model"
    for name, text in files.items():
        blob, link = model / "blobs" / name, model / "snapshots" / revision / name
        link.parent.mkdir(parents=True, exist_ok=True)
        blob.parent.mkdir(parents=True, exist_ok=True)
        if text:
            blob.write_text(text, encoding="utf-8")
        else:
            blob.with_name(f"{name}.incomplete").touch()
        link.symlink_to(Path("../../blobs") / name)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("abc", encoding="utf-8")
    return model


SHARDS = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})


@pytest.mark.parametrize(
    ("files", "lacks"),
    [
        ({"config.json": "{}", "model.safetensors": "w"}, []),
        ({"config.json": "{}", "pytorch_model.bin": "w"}, []),
        ({"model.safetensors": "w"}, ["config.json"]),
        ({"config.json": "{}"}, ["weights"]),
        ({"config.json": "{}", "model.safetensors": ""}, ["weights"]),
        (
            {"config.json": "{}", "model.safetensors.index.json": SHARDS, "model-1.safetensors": "w"},
            ["model-2.safetensors"],
        ),
        (
            {
                "config.json": "{}",
                "model.safetensors.index.json": SHARDS,
                "model-1.safetensors": "w",
                "model-2.safetensors": "w",
            },
            [],
        ),
    ],
)
def test_a_snapshot_counts_when_it_is_whole(
    tmp_path: Path, files: dict[str, str], lacks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot_of(tmp_path, files)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9/")
    facts = probe.hub({"hub": "lab/model"}, tmp_path)
    assert facts["lacks"] == lacks and facts["reachable"] is (False if lacks else None)
    (check,) = [
        pod_check
        for pod_check in pod_checks.machine({"hub": facts}, PodFile(host="gpu7"), "lab/model")
        if pod_check.id == "model"
    ]
    assert check.status == ("FAIL" if lacks else "PASS") and all(lack in check.detail for lack in lacks)


def test_a_snapshot_of_another_revision_is_not_the_one_that_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot_of(tmp_path, {"config.json": "{}", "model.safetensors": "w"}, revision="older")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert probe.hub({"hub": "lab/model"}, tmp_path)["snapshot"] is None


def test_the_hub_that_is_asked_is_the_one_the_pod_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert probe.hub({"hub": "lab/model"}, tmp_path) == {"snapshot": None, "lacks": [], "reachable": True}
        assert probe.hub({"hub": "lab/none"}, tmp_path)["why"] == "the hub answered 404"
        server.shutdown()
        thread.join()
    assert Layout(tmp_path, "small").environment({"HF_ENDPOINT": "http://mirror"})["HF_ENDPOINT"] == "http://mirror"


RULES = Rules(usd_per_hour=6.0, max_cost_usd=3.0, idle_minutes=10.0, dead_man_minutes=30.0, grace_minutes=6.0)


@pytest.mark.parametrize(
    ("hours", "idle", "away", "output"),
    [
        (0.39, 0.0, 0.0, None),  # 0.39 h and 0.1 h of grace cost 2.94
        (0.4, 0.0, 0.0, "price: 0.40 h and the grace cost 3.0000 USD, the cap is 3"),
        (0.0, 9.99, 0.0, None),
        (0.0, 10.0, 0.0, "idle: the session has not run for 10.00 minutes, the limit is 10"),
        (0.0, 0.0, 29.9, None),
        (0.0, 0.0, 30.0, "dead man: no one was attached for 30.00 minutes, the limit is 30"),
        (9.0, 99.0, 99.0, "price: 9.00 h and the grace cost 54.6000 USD, the cap is 3"),
    ],
)
def test_which_rule_ends_a_pod(hours: float, idle: float, away: float, output: str | None) -> None:
    assert why(RULES, hours=hours, idle_minutes=idle, away_minutes=away) == output
    assert why(Rules(), hours=1e6, idle_minutes=1e6, away_minutes=1e6) is None


def test_an_order_that_is_wrong_does_not_repeat_what_is_in_it() -> None:
    order = Order(python="p", spec="s", secrets={"KEY": "sk-CANARY"}).model_dump(mode="json")
    with pytest.raises(ValueError, match="rules") as caught:
        Order.model_validate_json(json.dumps(order | {"rules": "sk-CANARY"}), strict=True)
    assert "CANARY" not in str(caught.value)


@pytest.mark.slow
def test_the_wheel_holds_this_code_and_runs(tmp_path: Path) -> None:
    name, data = install.wheel_of_this()
    assert install.wheel_of_this()[1] == data, "the same code, the same bytes"
    path = tmp_path / name
    path.write_bytes(data)
    listed = zipfile.ZipFile(path).namelist()
    assert "specs/library/demo.yaml" in listed and "sessions/pages/templates/report.md.j2" in listed
    assert not [text for text in listed if "__pycache__" in text]
    target = tmp_path / "there"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    done = subprocess.run([*pip, "--target", str(target), str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = [sys.executable, "-P", "-c", "import sessions.pods.remote.pod_entry as f; print(f.__file__); f.version()"]
    process = subprocess.run(run, capture_output=True, text=True, env={"PYTHONPATH": str(target)}, cwd="/", check=False)
    assert str(target) in process.stdout and f'"protocol": {PROTOCOL}' in process.stdout, process.stderr


def test_constraints_name_versions_an_index_has() -> None:
    lines = install.constraints_of_this().decode().splitlines()
    assert any(line.startswith("torch==") for line in lines) and not [line for line in lines if "+" in line]
    assert not [line for line in lines if line.startswith("peergate==")]


HEALTHY: dict[str, Any] = {
    "root": "/durable/p",
    "time": 0.0,
    "python": [3, 11, 2],
    "cores": 2,
    "files": 1024,
    "venv": True,
    "disk": {"filesystem": "ext4", "seconds": 0.1, "whole": True, "free": 50e9},
    "gpus": {"list": ["NVIDIA H200, 143771 MiB"], "why": ""},
    "hub": {"snapshot": None, "lacks": [], "reachable": True},
    "torch": {"hung": False, "seconds": 3.0, "version": "2.13.0", "devices": 1},
}
POD = PodFile(host="pod", gpus=1)


@pytest.mark.parametrize(
    ("changed", "id", "output"),
    [
        ({"python": [3, 9, 1]}, "python", "Python 3.9.1, 3.11 is needed"),
        ({"venv": False}, "python", "has no venv and ensurepip"),
        ({"files": 256}, "open_files", "a process may open 256 files, 1024 are needed"),
        ({"disk": {"error": "OSError: quota"}}, "write", "/durable/p cannot be written: OSError: quota"),
        ({"disk": HEALTHY["disk"] | {"whole": False}}, "write", "read back other bytes"),
        ({"disk": HEALTHY["disk"] | {"filesystem": "tmpfs"}}, "root", "lies in memory (tmpfs)"),
        ({"disk": HEALTHY["disk"] | {"free": 9.9e9}}, "free", "9.9 GB are free, the pod file wants 10"),
        ({"gpus": {"list": [], "why": "no driver"}}, "gpu", "0 GPUs (no driver), 1 are wanted"),
        (
            {"hub": {"snapshot": None, "lacks": [], "reachable": False, "why": "refused"}},
            "model",
            "the hub is not reached: refused",
        ),
        # A pod that answers something else is not fit; it does not end in a traceback.
        ({"python": "3.11"}, "python", "gave no answer"),
        ({"gpus": {"error": "Timeout"}}, "gpu", "gave no answer"),
        ({"disk": None}, "write", "the pod gave no answer"),
        ({"disk": {"filesystem": "ext4"}}, "free", "gave no answer"),
        ({"hub": {}}, "model", "gave no answer"),
    ],
)
def test_each_fact_of_a_machine_can_fail(changed: dict[str, Any], id: str, output: str) -> None:
    failed = [check for check in pod_checks.machine(HEALTHY | changed, POD, "lab/model") if check.status == "FAIL"]
    assert id in [check.id for check in failed]
    assert output in next(check.detail for check in failed if check.id == id)
    assert not [check for check in pod_checks.machine(HEALTHY, POD, "lab/model") if check.status == "FAIL"]


@pytest.mark.parametrize(
    ("torch", "version", "id", "output"),
    [
        ({"hung": True}, None, "torch", "did not end within 120 s"),
        ({"hung": False, "failed": "ImportError: libcudart"}, None, "torch", "libcudart"),
        (HEALTHY["torch"] | {"devices": 0}, None, "torch", "it sees 0 GPUs, 1 are wanted"),
        ({"error": "x"}, None, "torch", "gave no answer"),
        (None, "No module named 'sessions'", "peergate", "does not run there: No module named 'sessions'"),
        (None, {"protocol": 99, "version": "9"}, "peergate", "speaks protocol 99"),
    ],
)
def test_each_fact_of_an_environment_can_fail(torch: Any, version: Any, id: str, output: str) -> None:
    here = "sha256:here"
    good = {"protocol": PROTOCOL, "version": "0.1.0", "measuring": here}
    checks = pod_checks.environment({"torch": torch or HEALTHY["torch"]}, version or good, here, POD, plugins={})
    assert [(check.id, output in check.detail) for check in checks if check.status == "FAIL"] == [(id, True)]
    other = pod_checks.environment(HEALTHY, good | {"measuring": "sha256:other"}, here, POD, plugins={})
    assert [(check.id, check.status) for check in other if check.status != "PASS"] == [("peergate", "WARN")]
    used = {"peergate.tasks ones": "acme-ones 1.0 sha256:1"}
    for there, status in ((used, "PASS"), (used | {"peergate.tasks twos": "x"}, "PASS"), ({}, "WARN")):
        brought = pod_checks.environment(HEALTHY, good | {"plugins": there}, here, POD, plugins=used)
        assert next(check.status for check in brought if check.id == "peergate") == status


def test_a_spec_that_wants_gpus_or_a_client_says_so_to_the_pod(tmp_path: Path) -> None:
    objective = "objective: Train the model to follow the format of an instruction.\n"
    spec = write_quick_spec(tmp_path / "gpus", (objective, f"{objective}resources: {{gpus: 2}}\n"))
    assert pod_plan.gpus_of(load_spec(spec).spec) == 2
    external = write_quick_spec(tmp_path / "external", ("{vendor: playbook}", "{vendor: external}"))
    done = peergate("pod", "plan", external, "--host", "pod")
    assert done.returncode == 2 and "a pod has none" in done.stderr
