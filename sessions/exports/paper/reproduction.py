"""What runs a session again: its spec with every file that it names, seeds, versions and the command."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from reviews.history.history import History
from sessions.exports.paper.references import UsedParts
from specs.stages.recipes import script_file
from specs.system.confinement import task_file
from specs.system.digests import digest_bytes
from specs.system.errors import UserError
from specs.system.masking import current
from specs.system.yaml.yaml_positions import dump_yaml
from specs.trail.session_bodies import ModelEntry

SPEC, REQUIREMENTS = "spec.yaml", "requirements.txt"
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.+!_-]*")


def write_reproduction(folder: Path, history: History, parts: UsedParts) -> list[str]:
    """Write what runs a session again into a new folder; returns what it lacks, a line each.

    The spec has every value written out. Its files stand below the folder in their registered form, whatever their
    names were; nothing of them is run.

    Raises:
        UserError: a file holds a secret that this process knows.
        EvidenceMissing, AuditDamage: the store lacks a file, or it was changed.
    """
    resolved, store = history.resolved, history.store
    spec = resolved.spec.model_dump(mode="json", by_alias=True)
    files: dict[str, bytes] = {}
    for name, digest in resolved.data_digests.items():
        file = spec["heldout"] if name == "heldout" else spec["data"][name]
        file |= {"path": f"data/{name}.jsonl", "digest": digest, "columns": {}, "drop": []}
        files[file["path"]] = store.get(digest)
    if resolved.constitution_digest is not None:
        spec["constitution"] = "constitution.yaml"
        files[spec["constitution"]] = store.get(resolved.constitution_digest)
    if resolved.task_text is not None:
        spec["task"] = f"./{_add(files, task_file.path_of(resolved.spec.task), resolved.task_text)}"
    for stage in spec["stages"]:
        if script := stage.get("script"):
            text = resolved.scripts[script_file.digest_of(script)]
            stage["script"] = _add(files, script_file.path_of(script), text)
    spec["reading"] = [
        _add(files, script_file.path_of(named), resolved.reading[script_file.digest_of(named)])
        for named in resolved.spec.reading
    ]
    lacks = [f"the document {name}: the trail has its digest alone" for name in spec.pop("companions", {})]
    lacks += [
        f"the transcripts {name}: the trail has them in the form that its jobs read"
        for name, file in resolved.spec.data.items()
        if file.row_kind == "transcripts"
    ]
    if (model := history.find(ModelEntry)) is not None:
        spec["model"]["digest"] = model.body.digest
        lacks += [f"the weights {model.body.digest}"]
    files[SPEC] = current().text(dump_yaml(_without_defaults(spec))).encode()
    files[REQUIREMENTS] = _requirements(history, parts).encode()
    files["README.md"] = _readme(history, lacks).encode()
    for path, data in files.items():
        if secret := current().known_in(data):
            raise UserError(f"contains the value of {secret}", where=path, hint="nothing was written")
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return lacks


def _add(files: dict[str, bytes], path: str, text: str) -> str:
    """Add a text under a name that no path of the spec can lead out of the folder; returns the name."""
    data = text.encode()
    digest = digest_bytes(data).removeprefix("sha256:")[:12]
    name = f"files/{digest}/{PurePosixPath(path).name}"
    files[name] = data
    return name


def _without_defaults(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec without keys of nothing, which the reader of a spec need not know."""
    return {name: value for name, value in spec.items() if value not in (None, [], {})}


def _requirements(history: History, parts: UsedParts) -> str:
    """Return the versions that the session and its jobs stated, as lines of requirements; other texts are left out."""
    state = history.opening.code_state
    stated = [f"peergate=={state.version}"]
    for name, versions in sorted(parts.packages.items()):
        stated += [f"{name}=={version}" for version in sorted(versions)]
    lines = [line for line in stated if _REQUIREMENT.fullmatch(line)]
    commit = f"# peergate: commit {state.commit or 'unknown'}, code {state.digest}"
    return "\n".join([commit, *lines]) + "\n"


def command_of(history: History) -> str:
    """Return the command that runs a session again, from the folder of the paper."""
    return f"peergate start reproduction/{history.session}/{SPEC} --name {history.session}-again"


def _readme(history: History, lacks: list[str]) -> str:
    seeds = ", ".join(map(str, history.resolved.spec.analysis.seeds))
    lines = [
        f"From the folder of the paper, with the versions of {REQUIREMENTS}:",
        f"    {command_of(history)}",
        f"Seed {seeds}. Registered as {history.registration}; paths differ here, so this spec has another digest.",
        "Held-out items are in data/heldout.jsonl: who trains on them can no longer be measured by them.",
        *(f"Not here: {current().text(line)}." for line in lacks),
    ]
    return "\n\n".join(lines) + "\n"
