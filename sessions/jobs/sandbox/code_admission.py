"""A builder's code on the orchestrator's side: stored as an artifact, and admitted to a sandbox by the launcher."""

from __future__ import annotations

import time
from pathlib import Path

from reviews.history.history import History
from reviews.history.people import lifted_checks
from reviews.stages.recipes.checks import SANDBOX
from reviews.trail.chain.store import Store, write_durably
from reviews.trail.trail import Trail
from sessions.jobs.sandbox import sandbox
from sessions.jobs.sandbox.recipe_job import ALLOWED, SCRIPT
from sessions.run.run_layout import STORE
from specs.jobs.job_records import JobOrder
from specs.session.session_spec import ResolvedSpec
from specs.session_words import session_words
from specs.stages.recipes.script_file import require_script
from specs.stages.registry import STAGE_KINDS
from specs.system.confinement import bubblewrap
from specs.system.digests import list_tree
from specs.system.errors import BlockedError, EvidenceMissing
from specs.system.regular_files import read_regular


def keep_recipe(store: Store, text: str) -> str:
    """Keep a script in the content store and return its digest; raise UserError if it is too long or no Python."""
    return store.put(require_script(text))


def keep_scripts(store: Store, resolved: ResolvedSpec) -> None:
    """Keep the scripts that a spec registers, which jobs and reviewers read, and a task that a builder may read."""
    readable = [resolved.task_text] if resolved.task_text is not None and resolved.spec.verifier.builder_reads else []
    for text in (*resolved.scripts.values(), *readable):
        store.put(text.encode())


def keep_files(store: Store, folder: Path) -> str:
    """Keep files of a recipe and return the digest of their folder; raise OSError, or ValueError for a link."""
    files = {path.relative_to(folder).as_posix(): store.put(read_regular(path)) for path in list_tree(folder)}
    return store.put_value(files)


def admit(trail: Trail, run: Path, folder: Path, order: JobOrder) -> None:
    """Put the granted script into the job folder, if there is a sandbox for it or a person allows it without one.

    The launcher calls it after it verified the grant, which says that the stage allows code, and before it records the
    intent.

    Raises:
        EvidenceMissing: the script is not in the content store.
        AuditDamage: the stored bytes do not match its digest.
        Blocked: no sandbox works here, or a secret lies in a mounted folder.
    """
    store = Store(run / STORE)
    history = History(trail.iterate(), store)
    resolved = history.resolved
    stage = order.grant.stage
    kind = STAGE_KINDS[order.kind]
    digest = order.parameters.get("code")
    if not isinstance(digest, str) and kind.runs_code:
        raise EvidenceMissing("no script was handed in", where=order.key)
    code = store.get(digest) if isinstance(digest, str) else None
    host = sandbox.script_host()
    if why := sandbox.why_not(host):
        remedy = "install bubblewrap 0.8 or newer" if host is None else "let bubblewrap make user namespaces here"
        by = lifted_checks(history, stage, time.time_ns()).get(SANDBOX) if kind.runs_code else None
        if not kind.runs_code:
            raise BlockedError(f"the task would run without a sandbox: {why}", where=order.key, hint=remedy)
        if by is None:
            raise BlockedError(
                f"the script would run without a sandbox: {why}",
                where=order.key,
                hint=f"{remedy}, or a person allows it: `peergate override {session_words(trail.path.parent)} "
                f"--check {SANDBOX} --stage {stage} --reason WHY`",
            )
        write_durably(folder / ALLOWED, by.encode())
    elif host is not None:
        # A job may have waited since before the sandbox was there; it must use the sandbox now.
        (folder / ALLOWED).unlink(missing_ok=True)
        paths = [run.parent, Path.home(), resolved.path(resolved.spec.heldout.path)]
        if seen_paths := bubblewrap.find_uncovered(host, paths):
            raise BlockedError(
                f"the sandbox would show {', '.join(str(path) for path in seen_paths)}",
                where=order.key,
                hint="keep runs, home and held-out items outside of /usr and of the Python environment",
            )
    if code is not None:
        write_durably(folder / SCRIPT, code)
