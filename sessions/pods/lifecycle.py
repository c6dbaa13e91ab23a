"""`pod up` stops at the first failed check, `start` starts, `down` ends nothing before the copy here is verified."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from reviews.checks.measuring_code import measuring_code
from sessions.pods import pod_checks
from sessions.pods.connection import Channel, ConnectionLost, PodConnection, PodRefusal, shell
from sessions.pods.install import Bundle, install, ship
from sessions.pods.pod_checks import PodCheck
from sessions.pods.pod_file import PodFile
from sessions.pods.pod_plan import asking, hub_sources, keys_of
from sessions.pods.pod_record import PodPlace, PodRecord
from sessions.pods.protocol import Order, Rules, Status
from sessions.pods.pull import PullResult, pull, require_whole, verify
from sessions.pods.remote.pod_layout import Layout
from specs.session.needed_packages import needed_packages, sandboxed_parts
from specs.session.reviewer_vendor import plugin_key, vendor_of
from specs.session.session_spec import ResolvedSpec, SessionSpec
from specs.system.errors import BlockedError, PeergateError, UserError
from specs.system.regular_files import read_regular
from specs.system.text import plain, plural
from specs.system.vendors.api_keys import find_key

Report = Callable[[PodCheck], None]
FETCH_S = 6 * 3600.0
PAUSE_S = 3600.0
"""A session pauses between two steps, and waits for an answer of a model that is under way."""
SHUTDOWN_S = 330.0
START_S = 120.0


def secrets_of(spec: SessionSpec, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the session's keys by their variables, or raise UserError if one is missing or malformed."""
    needed, perhaps = keys_of(spec)
    for party, value in asking(spec):
        find_key(party, value.vendor, value.base_url, environ)
    for reviewer in spec.reviewers():
        if reviewer.is_plugin:
            plugin_key(vendor_of(reviewer.vendor), environ)
    return {name: environ[name] for name in (*needed, *perhaps) if environ.get(name, "").strip()}


def start(
    connection: PodConnection,
    record: PodRecord,
    secrets: Mapping[str, str],
    answer: Literal["retry", "approve", "stop"] | None,
    reason: str,
) -> dict[str, Any]:
    """Start or resume the session; returns the orchestrator's pid, and whether the session was there before.

    Raises:
        Blocked: it runs already, an answer was given where nothing is asked, or the pod refuses for another reason.
        PeergateError: the pod's answer is malformed.
    """
    order = Order(
        python=record.python,
        spec=record.spec,
        profile=record.profile,
        answer=answer,
        reason=reason,
        secrets=dict(secrets),
        rules=Rules.model_validate(record.pod.model_dump(include=set(Rules.model_fields))),
    )
    words = shell(record.python, "-P", "-m", "sessions.pods.remote.pod_entry", "start", record.root, record.name)
    answered = connection.run_json(words, order.canonical(), "the pod did not start it", seconds=START_S)
    if "refused" in answered:
        raise BlockedError(f"the pod did not start it: {plain(str(answered['refused']), 800)}", where=record.name)
    try:
        return {"pid": int(answered["pid"]), "begun": bool(answered["begun"])}
    except (ValueError, KeyError, TypeError) as error:
        raise PeergateError("the pod did not say which process it started", where=record.name) from error


def status_of(channel: Channel, log: int) -> tuple[Status, bytes]:
    """Return the pod's status and its log from an offset on, or raise PeergateError if the status is malformed."""
    header, data = channel.ask("status", log=log)
    try:
        return Status.model_validate(header.get("status"), strict=True), data
    except ValueError as error:
        raise PeergateError("the pod reports a malformed status") from error


def down(
    connection: PodConnection, place: PodPlace, record: PodRecord, say: Callable[[str], None], *, pause: bool
) -> PullResult | None:
    """Pull, verify, end the processes there, and run the shutdown command; returns what was pulled.

    Raises:
        Blocked: the session runs, and it was not to be paused; nothing was ended.
        AuditDamage: the copy does not verify; nothing was ended.
        ConnectionLost: before the end; nothing was ended.
    """
    with Channel(connection, record.python, record.root, place.name) as channel:
        status, _ = status_of(channel, 0)
        if status.orchestrator == "running":
            if not pause:
                hint = "`peergate pod attach` waits for its end; `peergate pod down --pause` pauses it first"
                raise BlockedError("the session runs; the pod was not ended", where=place.name, hint=hint)
            _pause(channel, say)
        pulled: PullResult | None = None
        try:
            pulled = pull(channel, place, say)
        except PodRefusal as none:
            if status.entries:
                raise
            say(f"no trail on the pod: {none.message}")
        if pulled is not None:
            audit = verify(place)
            require_whole(place, audit)
            say(
                f"verified: {plural(audit.entries, 'entry', 'entries')}, {plural(audit.files, 'file')}, "
                f"{plural(audit.rederived, 'decision')} derived again"
            )
            channel.ask("pulled", entries=pulled.entries)
        if status.ending is not None:
            say("its keeper is ending the pod already, and does not wait any longer")
            return pulled
        channel.ask("sweep", everything=True)
        command = record.pod.shutdown
        say("running the shutdown command" if command else "no shutdown command is declared")
        with suppress(ConnectionLost):
            # The machine may be gone before it can answer.
            header, _ = channel.ask("shutdown", command=command, reason="peergate pod down", seconds=SHUTDOWN_S)
            if command and header.get("code") != 0:
                hint = "everything is pulled and verified; end the machine at your provider"
                raise BlockedError(f"the shutdown command ended with {header.get('code')}", where=place.name, hint=hint)
    return pulled


def _pause(channel: Channel, say: Callable[[str], None]) -> None:
    channel.ask("pause")
    say("asked the session to pause at the next safe place; its job is ended with the pod")
    deadline = time.monotonic() + PAUSE_S
    while status_of(channel, 0)[0].orchestrator == "running":
        if time.monotonic() > deadline:
            raise BlockedError(f"the session did not pause within {PAUSE_S:g} s; the pod was not ended")
        time.sleep(1)


class Unfit(BlockedError):
    """The pod failed a check."""


def prepare(
    connection: PodConnection, place: PodPlace, pod: PodFile, resolved: ResolvedSpec, bundle: Bundle, report: Report
) -> PodRecord:
    """Make a pod fit for a session; returns its record.

    Raises:
        Unfit: a check failed; nothing further was done.
        Blocked: the installation failed and was removed.
        UserError: another session of this name is there.
    """
    spec = resolved.spec
    hubs = [source.removeprefix("hub:") for source in hub_sources(spec)]
    hub = hubs[0] if hubs else None
    python = _probing_python(connection, pod, report)
    wanted = ["disk", "session", *(["gpus"] if pod.gpus else []), *(["hub"] if hub else [])]
    requests = {
        "root": pod.root,
        "name": place.name,
        "facts": wanted,
        "hub": hub,
        "write_bytes": pod_checks.WRITE_BYTES,
    }
    facts = pod_checks.facts(connection, python, requests)
    _report(pod_checks.machine(facts, pod, hub), report)
    root = str(facts["root"])
    if not root.startswith("/") or not isinstance(facts.get("session"), dict):
        raise Unfit("the root folder of the pod is not an absolute path", where=connection.address.destination)
    if facts["session"].get("there") is True:
        known = place.read().registration if place.record_path.exists() else None
        if known != resolved.registration():
            hint = "choose another --name, or another root in the pod file"
            raise UserError(f"a session '{place.name}' is on the pod already, with another or unknown spec", hint=hint)
    own = python if pod.environment else install(connection, python, root, spec)
    again = {"root": root, "name": place.name, "facts": ["torch"], "python": own, "torch_s": pod.torch_import_s}
    facts = pod_checks.facts(connection, python, again, seconds=pod.torch_import_s + 60)
    version, wanted = version_of(connection, own), resolved.plugins
    checks = pod_checks.environment(
        facts,
        version,
        measuring_code(),
        pod,
        plugins=wanted,
        packages=needed_packages(spec),
        sandboxed=sandboxed_parts(spec),
    )
    _report(checks, report)
    layout = Layout(Path(root), place.name)
    for name in hubs:
        revision = _fetch(connection, own, layout, name, revision_here(name))
        report(PodCheck("weights", "PASS", f"{name} is there, at revision {plain(revision, 40)}"))
    ship(connection, python, {f"{layout.specs}/{name}": path for name, path in bundle.files.items()})
    return PodRecord(
        name=place.name, pod=pod, root=root, python=own, spec=bundle.spec, registration=resolved.registration()
    )


def _probing_python(connection: PodConnection, pod: PodFile, report: Report) -> str:
    """Return the interpreter that looks at the machine: the interpreter in the pod file, else the machine's.

    Raises:
        Unfit: it is not there, or does not run.
    """
    if pod.environment is None:
        python = pod_checks.python_of_machine(connection)
        missing, hint = f"none of {', '.join(pod_checks.PYTHONS)} is there", "install Python 3.11 or newer"
    else:
        python = pod.environment
        if not python.startswith("/"):
            python = python.replace("~", connection.run('echo "$HOME"').out.decode("utf-8", "replace").strip(), 1)
        missing, hint = f"{python} does not run there", "name a Python of the pod under environment:, or none"
        if connection.run(shell(python, "-I", "-c", "")).code != 0:
            python = None
    if python is None:
        _report([PodCheck("python", "FAIL", missing, hint)], report)
    assert python is not None
    return python


def version_of(connection: PodConnection, python: str) -> dict[str, object] | str:
    """Return what the Peergate of a Python says of itself, or why it says nothing."""
    done = connection.run(shell(python, "-P", "-m", "sessions.pods.remote.pod_entry", "version"))
    with suppress(ValueError):
        result = json.loads(done.out)
        if done.code == 0 and isinstance(result, dict):
            return result
    return done.error.strip().rpartition("\n")[2] or f"exit code {done.code}"


def _report(checks: list[PodCheck], report: Report) -> None:
    for check in checks:
        report(check)
    failed = [check for check in checks if check.status == "FAIL"]
    if failed:
        first = failed[0]
        more = f", and {plural(len(failed) - 1, 'more check')} failed" if len(failed) > 1 else ""
        raise Unfit(f"{first.id}: {first.detail}{more}; nothing was installed or started after it", hint=first.hint)


def revision_here(name: str) -> str:
    """Return the revision of a model that the cache here holds; empty if it holds none."""
    try:
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:
        return ""
    ref = Path(HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "refs" / "main"
    with suppress(OSError):
        return read_regular(ref, 1 << 16).decode("utf-8").strip()
    return ""


_FETCH = """
import os, sys
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.constants import HF_HUB_CACHE
name, revision = sys.argv[1:]
ref = os.path.join(HF_HUB_CACHE, "models--" + name.replace("/", "--"), "refs", "main")
if os.path.isfile(ref):
    with open(ref, encoding="utf-8") as file:
        revision = file.read().strip()
revision = revision or HfApi().model_info(name).sha
snapshot_download(name, revision=revision)
os.makedirs(os.path.dirname(ref), exist_ok=True)
with open(ref + ".partial", "w", encoding="utf-8") as file:
    file.write(revision)
os.replace(ref + ".partial", ref)
print("revision " + revision)
"""
"""The pod keeps its first revision; else it takes the revision of the cache here, or the hub's newest."""


def _fetch(connection: PodConnection, python: str, layout: Layout, name: str, revision: str) -> str:
    """Download one revision of a model into the pod's cache, unless it is there whole; return the revision."""
    code = _FETCH
    variables = [f"{key}={value}" for key, value in layout.variables().items()]
    words = ["env", *variables, python, "-P", "-c", code, name, revision]
    script = f"mkdir -p {shell(str(layout.root / 'tmp'))} && exec {shell(*words)}"
    done = connection.run(shell("/bin/sh", "-c", script), seconds=FETCH_S)
    if done.code:
        last = done.error.strip().rpartition("\n")[2]
        raise Unfit(f"the model {name} cannot be fetched there: {last}", where=connection.address.destination)
    texts = done.out.decode("utf-8", "replace").strip().splitlines()
    return texts[-1].removeprefix("revision ") if texts else ""
