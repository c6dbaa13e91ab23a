"""A registered session whose second stage runs a builder's script, as far as the launcher and its job need one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reviews.gate.grants import mint, opened_by
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.trail import Trail
from sessions.jobs.sandbox.code_admission import keep_recipe
from specs.jobs.job_records import Artifact, JobOrder
from specs.session.session_spec import ResolvedSpec
from specs.stages.registry import resolve_parameters
from specs.system.digests import digest_path
from specs.trail.entry import EntryKind
from testing.factories.bodies import BODIES, append_json
from testing.factories.spec_files import loads, write_spec
from training.running_code import code_digest

STAGE = """\
  - name: look
    kind: recipe
    allow_code: true
    inputs: {rows: sample.rows, prompts: data.prompts, model: model}
    parameters: {memory_mb: 512, output_mb: 4, processes: 16, seed: 7}
    max_minutes: 0.5
"""
RECIPE = (
    ("builder: {vendor: playbook}", "builder: {vendor: anthropic, model: claude-opus-4-5}"),
    ("  - name: train\n", f"{STAGE}  - name: train\n"),
)


@dataclass
class RecipeSession:
    """A session in which the stage ``look`` is open."""

    run: Path
    trail: Trail
    resolved: ResolvedSpec
    store: Store

    def inputs(self) -> dict[str, Artifact]:
        """Return a file, a file of the store and a folder."""
        results = {"rows": "made/rows.jsonl", "model": "made/model", "prompts": "prompts.jsonl"}
        return {
            role: Artifact(name=role, path=path, digest=digest_path(self.run / path), bytes=1)
            for role, path in results.items()
        }

    def look(self, script: str, *, digest: str | None = None, **parameters: Any) -> JobOrder:
        """Hand a script in, mint the grant for it and return the order; ``parameters`` replace those of the spec."""
        stage = self.resolved.spec.stage("look")
        changed = stage.model_copy(update={"parameters": stage.parameters.model_copy(update=parameters)})
        stages = tuple(changed if stage.name == "look" else stage for stage in self.resolved.spec.stages)
        self.resolved = self.resolved.model_copy(
            update={"spec": self.resolved.spec.model_copy(update={"stages": stages})}
        )
        body = {"spec": self.store.put_value(self.resolved), "registration": self.resolved.registration()}
        self.append("open", "open", **body)
        opens = opened_by(self.resolved, History(self.trail.iterate()), "sample", "approve")
        self.append("decision", "decision/sample.1", stage="sample", opens=opens)
        code = digest or keep_recipe(self.store, script)
        artifacts = self.inputs()
        grant = mint(
            self.trail,
            self.resolved,
            changes={"code": code},
            inputs={role: artifact.digest for role, artifact in artifacts.items()},
            model=artifacts["model"].digest,
            price_cap_usd=0.5,
        )
        return JobOrder(
            key=grant.key(),
            kind="recipe",
            parameters=resolve_parameters(changed, {"code": code}).model_dump(mode="json"),
            inputs=artifacts,
            task=self.resolved.spec.task,
            grant=grant,
            code=code_digest(),
            max_seconds=changed.max_minutes * 60,
        )

    def append(self, kind: EntryKind, key: str, **changes: Any) -> RecordedEntry:
        """Append the smallest entry of a kind, with some of its body changed."""
        return append_json(self.trail, kind, key, BODIES[kind] | changes)


def recipe_session(folder: Path) -> RecipeSession:
    """Make a run folder in which an earlier stage has left rows and weights."""
    run = folder / "runs" / "small"
    run.mkdir(parents=True)
    resolved = loads(write_spec(run, *RECIPE))
    (run / "made" / "model").mkdir(parents=True)
    (run / "made" / "rows.jsonl").write_text(
        json.dumps({"item": "p0", "completion": "a tale", "completion_tokens": 2}) + "\n"
    )
    (run / "made" / "model" / "config.json").write_text("{}")
    return RecipeSession(run, Trail(run / "trail.sqlite", "small"), resolved, Store(run / "store"))
