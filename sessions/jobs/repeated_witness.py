"""Repeats the witnesses of a session with a new challenge, in a temporary folder: its trail and files stay unchanged.

The order, the process and the checks are the gate's; only the seed, and what the machine has, are others.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reviews.audit.pruning import weights_left
from reviews.audit.recompute import FORMLESS, formless
from reviews.audit.witness_needs import witnessed_attempts
from reviews.checks.definition import apply
from reviews.evidence.evidence import Evidence, WitnessEvidence
from reviews.evidence.gather import gather
from reviews.gate.challenge import RepeatedChallenge, witness_order
from reviews.gate.check_list import CHECKS
from reviews.history.history import History
from reviews.trail.chain.store import write_durably
from sessions.jobs.job_state import POLL_S
from sessions.jobs.launcher import JobState, Launcher, job_folder
from sessions.jobs.local_launcher import LocalLauncher
from sessions.jobs.untrusted_files import NotReadable, read_end
from specs.jobs.job_records import Artifact, JobOrder, JobProgress, Manifest
from specs.stages.base.witness import ROWS
from specs.stages.registry import kind_of
from specs.system.confinement.task_file import is_trusted
from specs.system.digests import digest_path
from specs.system.errors import BlockedError, EvidenceMissing, PeergateError
from specs.system.regular_files import read_regular
from specs.system.strict_json import read_json
from specs.system.text import plain
from specs.trail.session_bodies import ExitEntry, ModelEntry
from specs.trail.verdict import CheckResult
from training.running_code import code_digest

CHECKED = "witness."
"""How the ids of the checks begin that judge what a witness read."""
MOST_SECONDS = 7 * 86400.0
"""No one pays for it, and who waits can end it."""
REPORT_EVERY_S = 2.0
_COMPARED = ("python", "torch", "transformers", "tokenizers")
"""Packages of which another version than the job's is reported."""


@dataclass(frozen=True)
class RepeatedWitness:
    """What the repeated witness of one attempt found."""

    stage: str
    attempt: int
    read: int
    of: int
    wrong: int
    """The number of rows read that the granted weights did not write or score, or of steps that differ."""
    checks: tuple[CheckResult, ...]
    seconds: float
    differs: tuple[str, ...] = ()
    """What of this machine is not as the job's was."""
    unit: str = "rows"
    why: str = ""
    """Why it could not be witnessed; empty if it was."""

    @property
    def holds(self) -> bool:
        """Return whether every row that was drawn was read and is right."""
        return not self.why and all(check.status in ("PASS", "NOT_APPLICABLE") for check in self.checks)

    def as_data(self) -> dict[str, Any]:
        """Return it in the form of JSON."""
        facts = {name: getattr(self, name) for name in ("stage", "attempt", "read", "of", "unit", "seconds", "why")}
        checks = [check.model_dump(mode="json", include={"id", "status", "detail", "rows"}) for check in self.checks]
        reproduced = None if self.why else max(self.read - self.wrong, 0)
        return facts | {"reproduced": reproduced, "differs": list(self.differs), "checks": checks, "holds": self.holds}


@dataclass(frozen=True)
class Repetition:
    """What is repeated: a session's folder or export, and with which challenge."""

    folder: Path
    history: History
    again: RepeatedChallenge
    copies: Mapping[str, Path]
    """Folders of weights by digest, wherever they lie."""
    say: Callable[[str], None]

    def run(self, launcher: Launcher | None = None) -> Iterator[RepeatedWitness]:
        """Repeat the witness of each stage that was witnessed, in order."""
        for stage, attempt in witnessed_attempts(self.history):
            started_at = time.monotonic()
            try:
                repeated_witness = self._repeat(launcher or LocalLauncher(), stage, attempt)
            except FORMLESS as error:
                repeated_witness = RepeatedWitness(stage, attempt, 0, 0, 0, (), 0.0, why=formless(error))
            yield replace(repeated_witness, seconds=round(time.monotonic() - started_at, 3))

    def _repeat(self, launcher: Launcher, stage: str, attempt: int) -> RepeatedWitness:
        order = witness_order(self.history, self.history.attempt(stage, attempt).job, self.again)
        if order is None or order.challenge is None:
            raise EvidenceMissing("its job left nothing that a witness could read")
        if not is_trusted(order.task):
            raise EvidenceMissing("it would run a task file that no spec checked here names")
        challenge = order.challenge
        read, of = challenge.counts()
        order = order.model_copy(
            update={
                "inputs": {role: self._locate_input(role, artifact) for role, artifact in order.inputs.items()},
                "code": code_digest(),
                "max_seconds": MOST_SECONDS,
                "dead_man_minutes": None,
                "verifier": order.verifier.model_copy(update={"sandbox": True}),
            }
        )
        self.say(f"{stage}.{attempt}: a witness {challenge.describe()}")
        with tempfile.TemporaryDirectory(prefix="peergate-witness-") as place:
            folder = job_folder(Path(place), order.key)
            write_durably(folder / "order.json", order.canonical())
            job = self._await(launcher, folder, f"{stage}.{attempt}")
            manifest = _manifest(folder, job)
            evidence = gather(self.folder, self.history, stage, attempt)
            witness = WitnessEvidence(challenge, folder / "out" / f"{ROWS}.jsonl", manifest, "")
            checks = _run_checks(replace(evidence, witness=witness))
        if unread := next((check.detail for check in checks if check.status in ("BLOCKED", "ERROR")), ""):
            return RepeatedWitness(stage, attempt, read, of, 0, checks, 0.0, why=unread)
        wrong = round(sum(check.figure or 0 for check in checks if check.status == "FAIL"))
        differs = _differs(evidence, order, manifest)
        return RepeatedWitness(stage, attempt, read, of, wrong, checks, 0.0, differs=differs, unit=challenge.unit)

    def _locate_input(self, role: str, artifact: Artifact) -> Artifact:
        """Return an input by where it is on this machine; the witness itself compares its digest."""
        kept_path = self.history.store.path(artifact.digest)
        same = [weights.path for weights in weights_left(self.history) if weights.digest == artifact.digest]
        models = (entry.body for entry in self.history.of(ModelEntry))
        same += [model.path for model in models if model.digest == artifact.digest]
        places = [kept_path, *(self.folder / text for text in (artifact.path, *same))]
        if artifact.digest in self.copies:
            places.insert(1, self.copies[artifact.digest])
        path = next((place for place in places if place.exists()), None)
        if path is None:
            raise EvidenceMissing(
                f"input '{role}', {artifact.name} {artifact.digest}, is not here; --weights names a copy"
            )
        return artifact.model_copy(update={"path": str(path.resolve())})

    def _await(self, launcher: Launcher, folder: Path, name: str) -> JobState:
        launcher.start(folder)
        shown_at, last = time.monotonic(), ""
        try:
            while (job := launcher.poll(folder)).state not in ("exited", "lost"):
                time.sleep(POLL_S)
                if time.monotonic() - shown_at > REPORT_EVERY_S and (line := _progress(folder)) != last:
                    shown_at, last = time.monotonic(), line
                    self.say(f"{name}: {line}")
        except BaseException:
            launcher.cancel(folder, "its repetition was ended")
            while launcher.poll(folder).state == "running":
                time.sleep(POLL_S)
            raise
        return job


def copies_of(folders: Sequence[Path], say: Callable[[str], None]) -> dict[str, Path]:
    """Return folders of weights by their digests; raises Blocked if one cannot be read."""
    paths: dict[str, Path] = {}
    for folder in folders:
        say(f"digesting {folder}")
        try:
            paths[digest_path(folder)] = folder
        except (OSError, ValueError) as error:
            raise BlockedError(f"cannot be read: {error}", where=str(folder)) from error
    return paths


def stages_without(history: History) -> list[str]:
    """Return the stages whose jobs ended and were not witnessed."""
    witnessed = {stage for stage, _ in witnessed_attempts(history)}
    ended = dict.fromkeys(entry.body.stage for entry in history.of(ExitEntry))
    return [stage for stage in ended if stage not in witnessed]


def _progress(folder: Path) -> str:
    try:
        lines = read_end(folder / "progress.jsonl", 4096)[0].splitlines()
        newest = JobProgress.model_validate(read_json(lines[-1]))
    except (NotReadable, ValueError, IndexError):
        return "it loads the weights"
    return f"{newest.done} of {newest.total} {newest.unit}"


def _manifest(folder: Path, job: JobState) -> Manifest:
    """Return the manifest of a witness that read its rows; raises EvidenceMissing for any other end."""
    if job.exit is None:
        raise EvidenceMissing(f"the witness is lost: {plain(job.message, 400)}")
    if job.exit.code != 0:
        texts = [""]
        with suppress(NotReadable):
            texts = read_end(folder / "log.txt", 4096)[0].decode("utf-8", "replace").strip().splitlines() or texts
        ended = f"ended with code {job.exit.code} ({job.exit.reason})"
        raise EvidenceMissing(f"the witness {ended}: {plain(texts[-1], 400)}")
    manifest = Manifest.model_validate_json(read_regular(folder / "manifest.json"))
    if manifest.outputs.get(ROWS) != digest_path(folder / "out" / f"{ROWS}.jsonl"):
        raise PeergateError("the witness left other rows than its manifest says")
    return manifest


def _run_checks(evidence: Evidence) -> tuple[CheckResult, ...]:
    kind = kind_of(evidence.stage)
    gate_checks = (check for check in CHECKS if check.id.startswith(CHECKED) and check.belongs_to(kind))
    return tuple(apply(check, evidence, None) for check in gate_checks)


def _differs(evidence: Evidence, order: JobOrder, manifest: Manifest) -> tuple[str, ...]:
    """Return what is not as it was for the job. Where types differ, the checks take the coarser one's tolerance."""
    job = evidence.manifest
    assert job is not None
    pairs = {"dtype": (job.dtype, manifest.dtype), "device": (job.device, manifest.device)}
    pairs |= {"engine": (str(order.parameters.get("engine", "batched")), "batched")}
    pairs |= {name: (job.packages.get(name, "none"), manifest.packages.get(name, "none")) for name in _COMPARED}
    return tuple(f"{name} {here}, the job's was {then}" for name, (then, here) in pairs.items() if then != here)
