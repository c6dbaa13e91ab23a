"""Registers a session: its folder with spec, data and scripts, and the ``open`` entry of its trail."""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from reviews.checks.measuring_code import measuring_files
from reviews.reviewers.process.confinement import is_confined
from reviews.trail.chain.store import Store
from reviews.trail.tables.pointer import database_of
from reviews.trail.trail import Trail
from sessions.jobs.sandbox.code_admission import keep_scripts
from sessions.run.disk_errors import no_room
from sessions.run.run_layout import STORE, TRAIL
from specs.jobs.job_records import CodeState
from specs.session.design import Analysis
from specs.session.session_spec import ResolvedSpec
from specs.system.digests import digest_bytes
from specs.system.errors import UserError
from specs.system.masking import current
from specs.system.new_folder import new_folder
from specs.system.regular_files import read_regular
from specs.trail.session_bodies import Lease, OpenEntry, Replicates, SpecSignature


class SpecMaterial(NamedTuple):
    """The files that a session keeps of what its spec names."""

    source: bytes
    data: Mapping[str, bytes]
    constitution: bytes | None


def material_of(spec_path: Path, resolved: ResolvedSpec) -> SpecMaterial:
    """Read the files of a spec as they are now."""
    named = resolved.spec.constitution
    constitution = None if named is None else read_regular(resolved.path(named))
    return SpecMaterial(read_regular(spec_path), resolved.read_data(), constitution)


def register(
    run: Path,
    resolved: ResolvedSpec,
    material: SpecMaterial,
    state: CodeState,
    replicates: Replicates | None = None,
    signed: SpecSignature | None = None,
) -> None:
    """Create the run folder in one step: spec, data and the ``open`` entry, which says which code runs."""
    try:
        # Private under any umask, because it holds held-out items.
        with new_folder(run, mode=0o700) as partial:
            _fill(partial, run, resolved, material, state, replicates, signed)
    except FileExistsError as error:
        hint = "another process took the name meanwhile; choose another one with --name"
        raise UserError("already exists", where=str(run), hint=hint) from error
    except OSError as error:
        if (failure := no_room(error)) is not None:
            raise failure from error
        message, hint = f"no session can be kept there: {error.strerror}", "--runs names the folder"
        raise UserError(message, where=str(run.parent), hint=hint) from error


def _fill(
    folder: Path,
    run: Path,
    resolved: ResolvedSpec,
    material: SpecMaterial,
    state: CodeState,
    replicates: Replicates | None,
    signed: SpecSignature | None,
) -> None:
    """Write a session's files and its ``open`` entry into a folder that becomes ``run``."""
    name = run.name
    store, spec = Store(folder / STORE), resolved.spec
    for file, data in material.data.items():
        where = spec.heldout.path if file == "heldout" else spec.data[file].path
        if digest_bytes(data) != resolved.data_digests[file]:
            raise UserError("changed while the session was opened", where=where, hint="start again")
        if secret := current().known_in(data):
            # The spec pins the file's digest, so the secret cannot be masked.
            hint = "remove it; nothing was started"
            raise UserError(f"contains the value of {secret}", where=where, hint=hint)
        store.put(data)
    if material.constitution is not None:
        store.put(material.constitution)
    keep_scripts(store, resolved)
    (folder / "spec.yaml").write_bytes(material.source)
    (folder / "spec.resolved.json").write_bytes(resolved.canonical())
    if (address := database_of(run / TRAIL)) is not None:
        # Imported here: a trail in a file needs no psycopg.
        from reviews.trail.tables.postgres_table import begin_log

        begin_log(folder / TRAIL, name, address, run)
    trail = Trail(folder / TRAIL, name)
    # What does not apply is left out.
    facts = {"constitution": resolved.constitution_digest, "replicates": replicates, "signed": signed}
    body = OpenEntry(
        registration=resolved.registration(),
        measured_by=store.put_value(dict(measuring_files(resolved))),
        spec=store.put_value(resolved),
        source=store.put(material.source),
        data=dict(resolved.data_digests),
        # Whole: what the spec does not name is recorded too.
        analysis=Analysis.model_validate(spec.analysis.model_dump(mode="json")),
        builder=spec.builder.vendor,
        reviewer=", ".join(reviewer.vendor for reviewer in spec.reviewers()),
        by=getpass.getuser(),
        reviewer_confined=is_confined(),
        code_state=state,
        lease=Lease(epoch=1, host=platform.node(), pid=os.getpid(), over=None),
        **dict[str, Any]((name, value) for name, value in facts.items() if value is not None),
    )
    trail.append(body)
    trail.close()
