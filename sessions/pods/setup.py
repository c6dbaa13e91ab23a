"""`peergate pod up`: check the machine, install, check again, bring the spec. What fails stops before the next step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from reviews.checks.measuring_code import measuring_code
from sessions.pods import pod_checks
from sessions.pods.connection import Connection, shell
from sessions.pods.install import install, wants_ray
from sessions.pods.pod_checks import Check
from sessions.pods.pod_file import PodFile
from sessions.pods.pod_record import Place, PodRecord
from sessions.pods.remote.pod_layout import Layout
from sessions.pods.ship import Bundle, ship
from specs.errors import Blocked, UserError
from specs.session.session_spec import ResolvedSpec

Report = Callable[[Check], None]
FETCH_S = 6 * 3600.0


class Unfit(Blocked):
    """The pod failed a check."""


def prepare(
    connection: Connection, place: Place, pod: PodFile, resolved: ResolvedSpec, bundle: Bundle, report: Report
) -> PodRecord:
    """Make a pod fit for a session, or say why it is not; returns what is kept of it.

    Raises:
        Unfit: a check failed; nothing further was done.
        Blocked: the installation failed; nothing of it is left.
        UserError: another session of this name is there.
    """
    spec = resolved.spec
    hub = spec.model.source.removeprefix("hub:") if spec.model.source.startswith("hub:") else None
    python = pod_checks.python_of_machine(connection)
    if python is None:
        missing = Check(
            "python", "FAIL", f"none of {', '.join(pod_checks.PYTHONS)} is there", "install Python 3.11 or newer"
        )
        _report([missing], report)
    assert python is not None
    wanted = ["disk", "session", *(["gpus"] if pod.gpus else []), *(["hub"] if hub else [])]
    asked = {"root": pod.root, "name": place.name, "facts": wanted, "hub": hub, "write_bytes": pod_checks.WRITE_BYTES}
    told = pod_checks.facts(connection, python, asked)
    _report(pod_checks.machine(told, pod, hub), report)
    root = str(told["root"])
    if not root.startswith("/") or not isinstance(told.get("session"), dict):
        raise Unfit("the pod tells no folder for its root", where=connection.address.destination)
    _require_same(place, resolved, there=told["session"].get("there") is True)
    own = pod.environment or install(connection, python, root, spec)
    own = own if own.startswith("/") else _absolute(connection, own)
    again = {"root": root, "name": place.name, "facts": ["torch"], "python": own, "torch_s": pod.torch_import_s}
    told = pod_checks.facts(connection, python, again, seconds=pod.torch_import_s + 60)
    _report(
        pod_checks.environment(told, version_of(connection, own), measuring_code(), pod, wants_ray=wants_ray(spec)),
        report,
    )
    layout = Layout(Path(root), place.name)
    if hub is not None:
        _fetch(connection, own, layout, hub)
    ship(connection, python, {f"{layout.specs}/{name}": path for name, path in bundle.files.items()})
    return PodRecord(
        name=place.name, pod=pod, root=root, python=own, spec=bundle.spec, registration=resolved.registration()
    )


def version_of(connection: Connection, python: str) -> dict[str, object] | str:
    """Return what the Peergate of a Python says of itself, or why it says nothing."""
    done = connection.run(shell(python, "-P", "-m", "sessions.pods.remote.pod_entry", "version"))
    try:
        found = json.loads(done.out)
    except ValueError:
        found = None
    if done.code or not isinstance(found, dict):
        return done.told.strip().rpartition("\n")[2] or f"exit code {done.code}"
    return found


def _report(found: list[Check], report: Report) -> None:
    for one in found:
        report(one)
    failed = [one for one in found if one.status == "FAIL"]
    if failed:
        first = failed[0]
        more = f", and {len(failed) - 1} more checks failed" if len(failed) > 1 else ""
        raise Unfit(f"{first.id}: {first.detail}{more}; nothing was installed or started after it", hint=first.hint)


def _require_same(place: Place, resolved: ResolvedSpec, *, there: bool) -> None:
    """Make sure that a session that is there is the one that is meant."""
    if not there:
        return
    known = place.read().registration if place.record_path.exists() else None
    if known != resolved.registration():
        raise UserError(
            f"a session '{place.name}' is on the pod already, and it is not known here as this one",
            hint="choose another --name, or another root in the pod file",
        )


def _absolute(connection: Connection, path: str) -> str:
    home = connection.run('echo "$HOME"').out.decode("utf-8", "replace").strip()
    return path.replace("~", home, 1)


def _fetch(connection: Connection, python: str, layout: Layout, name: str) -> None:
    """Have a snapshot of the model in the pod's cache; one that is whole is not fetched again."""
    code = "import sys; from huggingface_hub import snapshot_download; snapshot_download(sys.argv[1])"
    variables = [f"{key}={value}" for key, value in layout.variables().items()]
    words = ["env", *variables, python, "-P", "-c", code, name]
    script = f"mkdir -p {shell(str(layout.root / 'tmp'))} && exec {shell(*words)}"
    done = connection.run(shell("/bin/sh", "-c", script), seconds=FETCH_S)
    if done.code:
        last = done.told.strip().rpartition("\n")[2]
        raise Unfit(f"the model {name} cannot be fetched there: {last}", where=connection.address.destination)
