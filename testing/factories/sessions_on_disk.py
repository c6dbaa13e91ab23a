"""A registered session on disk without graph or jobs: a trail, a spec, input files, decisions written by the test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reviews.gate.grants import mint, opened_by
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.trail import Trail
from specs.jobs.grant_and_claim import Grant
from specs.jobs.job_records import Artifact, JobOrder
from specs.session.session_spec import ResolvedSpec
from specs.stages.registry import resolve_parameters
from specs.system.digests import digest_file, digest_path
from specs.trail.verdict import Outcome
from testing.factories.bodies import append_json, body_of
from testing.factories.spec_files import loads, write_spec
from training.running_code import code_digest


@dataclass
class OnDisk:
    """A session whose trail holds its ``open`` entry and what the test added."""

    run: Path
    trail: Trail
    resolved: ResolvedSpec

    @property
    def registration(self) -> str:
        return self.resolved.registration()

    def inputs(self, stage: str = "base") -> dict[str, Artifact]:
        """Return the inputs of a stage; what an earlier stage would have made is a small file."""
        artifacts: dict[str, Artifact] = {}
        for role in self.resolved.spec.stage(stage).inputs:
            path = self.run / {"items": "heldout.jsonl", "prompts": "prompts.jsonl"}.get(role, f"{role}.bin")
            artifacts[role] = Artifact(name=role, path=path.name, digest=digest_file(path), bytes=path.stat().st_size)
        return artifacts

    def digests(self, stage: str = "base") -> dict[str, str]:
        """Return the input digests as the files are now."""
        return {role: digest_path(self.run / artifact.path) for role, artifact in self.inputs(stage).items()}

    def decide(self, stage: str | None, attempt: int, outcome: Outcome, **changes: Any) -> RecordedEntry:
        """Record a decision and what it opens."""
        opens = opened_by(self.resolved, History(self.trail.iterate()), stage, outcome)
        body = body_of("decision", stage=stage, attempt=attempt, outcome=outcome, opens=opens) | changes
        return append_json(self.trail, "decision", f"decision/{stage or 'design'}.{attempt}", body)

    def retract(self, recorded_entry: RecordedEntry) -> RecordedEntry:
        """Take a judgement back."""
        number = sum(1 for _ in self.trail.iterate("retraction")) + 1
        at = {"stage": recorded_entry.raw["stage"], "attempt": recorded_entry.raw["attempt"]}
        return append_json(
            self.trail, "retraction", f"retraction/{number}", body_of("retraction", since=recorded_entry.seq, **at)
        )

    def retry(self, stage: str) -> RecordedEntry:
        """Answer that a stage is tried again."""
        entries = list(self.trail.iterate())
        opens = {"stage": stage, "attempt": History(entries).next_attempt(stage)}
        body = body_of("human", stage=stage, attempt=0, question=entries[-1].digest, answer="retry", opens=opens)
        return append_json(self.trail, "human", f"human/{len(entries)}", body)

    def mint(self, stage: str = "base", changes: dict[str, Any] | None = None, **other: Any) -> Grant:
        """Mint the grant for what is open; ``stage`` only says whose inputs to bind."""
        arguments: dict[str, Any] = {
            "changes": changes or {},
            "inputs": self.digests(stage),
            "model": digest_file(self.run / "model.bin"),
            "price_cap_usd": 0.5,
        }
        return mint(self.trail, self.resolved, **(arguments | other))

    def order(self, grant: Grant, changes: dict[str, Any] | None = None, **other: Any) -> JobOrder:
        """Return the order for a grant."""
        stage = self.resolved.spec.stage(grant.stage)
        order = JobOrder(
            key=grant.key(),
            kind=stage.kind,
            parameters=resolve_parameters(stage, changes or {}).model_dump(mode="json"),
            inputs=self.inputs(grant.stage),
            task=self.resolved.spec.task,
            grant=grant,
            code=code_digest(),
            max_seconds=stage.max_minutes * 60,
        )
        return order.model_copy(update=other)


def open_session(folder: Path, *changes: tuple[str, str]) -> OnDisk:
    """Register the shared small spec, with these changes, in a new run folder."""
    folder.mkdir(parents=True, exist_ok=True)
    resolved = loads(write_spec(folder, *changes))
    for role in ("model", "examples"):
        (folder / f"{role}.bin").write_bytes(role.encode())
    trail = Trail(folder / "trail.sqlite", "small")
    append_json(trail, "open", "open", body_of("open", registration=resolved.registration()))
    return OnDisk(folder, trail, resolved)


def first_order(folder: Path) -> JobOrder:
    """Return the order of the first job of the small session, opened in a new run folder and closed again."""
    session = open_session(folder)
    session.decide(None, 1, "approve")
    order = session.order(session.mint())
    session.trail.close()
    return order
