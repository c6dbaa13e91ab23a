"""A whole session with a recipe in it: the real graph, gates and trail, a real sandbox, the other jobs played."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agents.playbook import Playbook
from agents.workbench_protocol import Workbench
from reviews.audit.verify import verify_run
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.builder.tools.reading_tools import artifacts
from sessions.jobs import job_environment
from sessions.jobs.launcher import JobState
from sessions.jobs.local_launcher import LocalLauncher
from sessions.runtime import human_actions
from specs.jobs.job_records import JobOrder
from specs.system.confinement import bubblewrap
from specs.system.digests import digest_bytes, digest_path
from specs.system.errors import BlockedError
from specs.system.vendors.conversation import ToolCall
from specs.trail.builder_tools import LaunchStage, WriteRecipe
from specs.trail.verdict import Packet
from testing.factories.recipe_session import RECIPE
from testing.fixtures.collected import collected
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session
from testing.fixtures.sandbox import hide_bubblewrap, needs_sandbox

pytestmark = pytest.mark.integration

SCRIPT = """\
import json, os
rows = [json.loads(line) for line in open(f"{os.environ['INPUTS']}/rows")]
with open("rows.jsonl", "w") as out:
    print(json.dumps({"claim": "rows that were sampled", "value": len(rows)}), file=out)
os.mkdir("plots")
open("plots/note.txt", "w").write("seen")
open("a name with spaces", "w").write("not readable by name")
"""


class Scripting(Playbook):
    """A builder that writes a script where the stage takes one."""

    name = "scripting"

    def __init__(self, script: str = SCRIPT) -> None:
        self.script = script
        self.results: list[str] = []

    def work(self, bench: Workbench) -> None:
        if bench.phase != "plan" or bench.view.kind != "recipe":
            super().work(bench)
            return
        written = WriteRecipe(script=self.script).model_dump_json()
        result = bench.call(ToolCall(id="w", name="write_recipe", arguments=written))
        self.results.append(str(result))
        match_object = re.search(r"sha256:[0-9a-f]{64}", str(result))
        wish = LaunchStage(
            stage=bench.view.stage, code=match_object[0] if match_object else None, reason="to look at the rows"
        )
        launched = wish.model_dump_json(exclude_defaults=True)
        self.results.append(str(bench.call(ToolCall(id="l", name="launch_stage", arguments=launched))))


@dataclass
class RealRecipes(QuickLauncher):
    """Plays every job but recipes, which really run."""

    local: LocalLauncher = field(default_factory=LocalLauncher)

    def start(self, folder: Path) -> None:
        """Start a recipe, play everything else."""
        self._of(folder).start(folder)

    def poll(self, folder: Path) -> JobState:
        """Return how a job is."""
        return self._of(folder).poll(folder)

    def _of(self, folder: Path) -> LocalLauncher | QuickLauncher:
        order = JobOrder.model_validate_json((folder / "order.json").read_bytes())
        return self.local if order.kind == "recipe" else QuickLauncher(self.rows)


def play(run: Path, builder: Playbook | None = None) -> None:
    """Drive the session, and collect the wrapper of its recipe."""
    launcher = RealRecipes()
    with collected():
        drive(quick_session(run, builder or Scripting(), launcher))
    launcher.local.poll(run)


def outcomes(run: Path) -> dict[str, str]:
    entries = read_entries(run / "trail.sqlite")
    return {str(entry.raw["stage"]): entry.raw["outcome"] for entry in entries if entry.kind == "decision"}


@needs_sandbox
def test_a_session_with_a_recipe_is_accepted_and_verified(tmp_path: Path) -> None:
    run = open_quick(tmp_path, *RECIPE)
    builder = Scripting()
    play(run, builder)
    assert outcomes(run)["look"] == "approve" and outcomes(run)["ship"] == "approve", builder.results
    audit = verify_run(run, "trail.sqlite", "store")
    assert audit.damage == [] and audit.verdict == "verified"
    store = Store(run / "store")
    body = {entry.key: entry.raw for entry in read_entries(run / "trail.sqlite")}
    code = digest_bytes(SCRIPT.encode())
    assert body["plan/look.1"]["changes"] == {"code": code} and store.get(code) == SCRIPT.encode()
    packet = Packet.model_validate(store.get_value(body["packet/look.1"]["packet"]))
    assert packet.code == SCRIPT and packet.metrics == {} and packet.granted_parameters["code"] == code
    assert [check.id for check in packet.checks if check.status not in ("PASS", "NOT_APPLICABLE")] == []
    assert packet.sample_rows == ({"claimed": '{"claim": "rows that were sampled", "value": 10}'},)
    files = body["exit/small.look.1"]["outputs"]["files"]
    assert (run / files["path"] / "plots" / "note.txt").read_text() == "seen"
    assert digest_path(run / files["path"]) == files["digest"]
    session = quick_session(run)
    try:
        readable = {artifact.name: artifact.digest for artifact in artifacts(session)}
    finally:
        session.trail.close()
    assert store.get(readable["look.1.files.plots.note.txt"]) == b"seen"
    assert store.get(readable["look.1.rows"]).startswith(b'{"claim"')
    assert not [name for name in readable if name.startswith("look.1.files.") and name != "look.1.files.plots.note.txt"]


def test_without_a_sandbox_the_session_waits_for_a_person_who_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "this_host", lambda: None)
    # The job looks for itself: where it finds a sandbox it uses it, permission or not.
    for name, value in hide_bubblewrap(tmp_path).items():
        monkeypatch.setitem(job_environment._SET, name, value)  # pyright: ignore[reportPrivateUsage]
    run = open_quick(tmp_path, *RECIPE)
    with pytest.raises(BlockedError, match="without a sandbox"):
        play(run)
    assert "look" not in outcomes(run)
    human_actions.lift_check(run, "recipe.sandbox", "look", "ada", "a machine that is thrown away", None)
    play(run)
    assert outcomes(run)["look"] == "approve" and outcomes(run)["ship"] == "approve"
    decided = next(entry for entry in read_entries(run / "trail.sqlite") if entry.key == "decision/look.1")
    assert "check recipe.sandbox is FAIL, lifted by ada: a machine that is thrown away" in decided.raw["reasons"]
    assert verify_run(run, "trail.sqlite", "store").damage == []
