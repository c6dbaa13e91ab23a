"""Makes a release of an accepted session in a new folder, and sends it to its destination."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from reviews.audit.export import export_run
from reviews.history.history import History
from reviews.trail.chain.keys import KeyFolder
from sessions.exports.shipping.model_card import CARD, model_card
from sessions.exports.shipping.release import RELEASE, write_release
from sessions.pages.report.trail_page import trail_page
from sessions.run.final_model import FinalModel, copy_model
from sessions.run.run_layout import STORE, TRAIL
from specs.stages.registry import outputs_of
from specs.system.digests import digest_file, digest_path
from specs.system.errors import AuditDamage, UserError
from training.rules.packaging.flaw import Flaw
from training.rules.packaging.ship_rules import check_files

HUB = "hub:"
TOKEN = "HF_TOKEN"
EVIDENCE = "evidence"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")


class ReleaseResult(NamedTuple):
    """What went, or would go."""

    files: dict[str, str]
    """Path -> digest."""
    key_id: str
    flaws: tuple[Flaw, ...] = ()
    """Why nothing went."""


def release_run(run: Path, to: str, say: Callable[[str], None], *, dry_run: bool, public: bool) -> ReleaseResult:
    """Release the model of a session; nothing is left behind where anything is wrong, or in a dry run.

    Raises:
        UserError: the session is missing or not accepted, the folder is there, a repository's name is malformed, or the
            token is missing.
        EvidenceMissing: the session left no model.
        AuditDamage: trail, evidence or weights are not what was recorded.
    """
    name = to.removeprefix(HUB) if to.startswith(HUB) else ""
    target = Path(to)
    token = _token(name, dry_run=dry_run) if to.startswith(HUB) else ""
    if not to.startswith(HUB) and target.exists():
        raise UserError("already exists", where=to, hint="name another folder")
    beside = None if to.startswith(HUB) or dry_run else target.resolve().parent
    if beside is not None:
        beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".release-", dir=beside) as scratch:
        made = Path(scratch) / "release"
        done = _make(run, made, say)
        if done.flaws or dry_run:
            return done
        if to.startswith(HUB):
            _upload(made, name, token, public=public)
        else:
            try:
                made.rename(target)
            except OSError as error:
                if not target.exists():
                    raise
                raise UserError("already exists", where=to, hint="name another folder") from error
    return done


def _make(run: Path, made: Path, say: Callable[[str], None]) -> ReleaseResult:
    model = copy_model(run, made, say)
    history = History.read(run / TRAIL, run / STORE)
    for stage, path, digest in exports_of(history, model):
        say(f"copying the export of {stage}")
        for file in sorted((run / path).rglob("*.gguf")):
            shutil.copyfile(file, made / f"{stage}-{file.name}")
        if digest_path(run / path) != digest:
            raise AuditDamage(f"{path} is not the recorded {digest}: nothing was released", where=str(run))
    if flaws := tuple(flaw for layer_outcome in check_files(made) for flaw in layer_outcome.flaws):
        return ReleaseResult({}, "", flaws)
    (made / CARD).write_text(model_card(run, history, model), encoding="utf-8")
    export_run(run, TRAIL, STORE, made / EVIDENCE, trail_page)
    about = {
        "session": history.session,
        "stage": f"{model.stage}.{model.attempt}",
        "registration": history.registration,
        "trail": {"entries": len(history), "head": history[-1].digest},
    }
    release = write_release(made, about, KeyFolder.of_trail(run / TRAIL).signer("human"))
    return ReleaseResult(release.files | {RELEASE: digest_file(made / RELEASE)}, release.key_id)


def exports_of(history: History, model: FinalModel) -> Iterator[tuple[str, str, str]]:
    """Yield stage, path and digest of the accepted exports of the weights that the registered treatment evaluated."""
    spec = history.resolved.spec
    evaluated = spec.stage(spec.analysis.treatment).inputs.get("model")
    made = spec.stage(model.stage)
    of = {evaluated, *(f"{made.name}.{name}" for name in outputs_of(made.kind, made.parameters))}
    for stage in spec.stages:
        attempt = history.accepted_attempt(stage.name)
        if attempt is None or attempt.exit is None or stage.inputs.get("model") not in of:
            continue
        if (export := attempt.exit.body.outputs.get("export")) is not None:
            yield stage.name, export.path, export.digest


def _token(name: str, *, dry_run: bool) -> str:
    if not _NAME.fullmatch(name):
        raise UserError(f"'{name}' is not a repository", hint="write hub:OWNER/NAME")
    token = os.environ.get(TOKEN, "")
    if not token and not dry_run:
        raise UserError(f"{TOKEN} is not set", hint="the token of the Hub is taken from the environment alone")
    return token


def _upload(folder: Path, name: str, token: str, *, public: bool) -> None:
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    api.create_repo(name, private=not public, exist_ok=True)
    api.upload_folder(repo_id=name, folder_path=str(folder), commit_message="Release by peergate ship push")
