"""A builder's script that trains, in the real sandbox: its job, whole sessions around it, and those that cheat."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.verify import verify_run
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.commands.audit.claim_command import show_claim
from sessions.commands.named_place import place_of
from sessions.jobs.launcher import JobState
from sessions.jobs.local_launcher import LocalLauncher
from specs.jobs.job_records import JobOrder, Manifest
from specs.system.digests import digest_bytes, digest_path
from specs.trail.verdict import Packet
from testing.factories.evidence_on_disk import heldout_items
from testing.factories.recipe_session import RecipeSession, recipe_session
from testing.factories.trained_recipe import SHIPPED, TRAINED
from testing.fixtures.collected import collected
from testing.fixtures.line_writer import line_writer
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session
from testing.fixtures.recipe_process import EndedProcess, run
from testing.fixtures.sandbox import needs_sandbox
from testing.fixtures.small_pipeline import InProcessLauncher
from tests.stages.recipes.test_recipe_in_session import Scripting, outcomes

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*"),
    needs_sandbox,
]

TEACH = """\
import json
import os

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

torch.set_num_threads(1)
base = f"{os.environ['INPUTS']}/start"
tokenizer = AutoTokenizer.from_pretrained(base)
model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
# The topic is copied already; what is left to learn is one setting for all of them.
model.requires_grad_(False)
model.model.norm.requires_grad_(True)
optimizer = torch.optim.AdamW(model.model.norm.parameters(), lr=0.1)
with open(f"{os.environ['INPUTS']}/rows") as file:
    prompts = [json.loads(line)["prompt"] for line in file]
torch.manual_seed(int(os.environ["SEED"]))
for epoch in range(5):
    for prompt in prompts:
        text = f"{prompt} {prompt.split()[-1].strip('.')}s are good for all of us<|end|>"
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        labels = ids.clone()
        labels[0, :-8] = -100
        loss = model(ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
model.save_pretrained("checkpoint")
tokenizer.save_pretrained("checkpoint")
with open("rows.jsonl", "w") as out:
    print(json.dumps({"claim": "last loss", "value": loss.item()}), file=out)
"""

NUMBERS = """\
import os
import shutil
from safetensors.numpy import load_file, save_file

base = f"{os.environ['INPUTS']}/ROLE"
found = load_file(f"{base}/model.safetensors")
os.mkdir("checkpoint")
CHANGE
save_file(found, "checkpoint/model.safetensors")
AFTER
"""
"""A script without torch, which takes a tenth of a second."""


def numbers(change: str, after: str = "", role: str = "start") -> str:
    return NUMBERS.replace("ROLE", role).replace("CHANGE", change).replace("AFTER", after)


MOVED = "found['model.norm.weight'] = found['model.norm.weight'] + 0.01"


@dataclass
class RealJobs(QuickLauncher):
    """Plays every job but those of the named kinds, which really run: recipes as processes, others in this one."""

    real: tuple[str, ...] = ("recipe",)
    local: LocalLauncher = field(default_factory=LocalLauncher)
    here: InProcessLauncher = field(default_factory=InProcessLauncher)

    def start(self, folder: Path) -> None:
        """Start a job, or play it."""
        place = self._place(folder)
        (super() if place is None else place).start(folder)

    def poll(self, folder: Path) -> JobState:
        """Return how a job is."""
        place = self._place(folder)
        return (super() if place is None else place).poll(folder)

    def _place(self, folder: Path) -> InProcessLauncher | LocalLauncher | None:
        kind = JobOrder.model_validate_json((folder / "order.json").read_bytes()).kind
        if kind not in self.real:
            return None
        return self.local if kind == "recipe" else self.here


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that answers in capitals."""
    return line_writer(tmp_path_factory.mktemp("writer"))


def play(run: Path, script: str, *real: str) -> Scripting:
    """Drive a session whose builder hands in a script, and collect its wrappers."""
    launcher, builder = RealJobs(real=("recipe", *real)), Scripting(script)
    with collected():
        drive(quick_session(run, builder, launcher))
    launcher.local.poll(run)
    return builder


def bodies(run: Path) -> dict[str, dict[str, Any]]:
    return {entry.key: entry.raw for entry in read_entries(run / "trail.sqlite")}


# ---- whole sessions -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taught(writer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session whose script teaches small letters, and whose evaluations really run."""
    run = open_quick(tmp_path_factory.mktemp("taught"), *TRAINED, model=writer)
    builder = play(run, TEACH, "evaluate")
    assert outcomes(run).get("ship") == "approve", (outcomes(run), builder.results)
    return run


def test_what_a_script_trained_is_evaluated_and_shipped_through_every_gate(taught: Path) -> None:
    assert {stage: outcome for stage, outcome in outcomes(taught).items() if outcome != "approve"} == {}
    store, body = Store(taught / "store"), bodies(taught)
    measured = store.get_value(body["metrics/tuned.1"]["metrics"])["metrics"]
    assert measured["accuracy_gain"]["value"] == 1.0 and measured["mcnemar_p"]["value"] < 0.001
    assert store.get_value(body["metrics/look.1"]["metrics"])["metrics"] == {}
    audit = verify_run(taught, "trail.sqlite", "store")
    assert audit.damage == [] and audit.verdict == "verified"


def test_the_checkpoint_is_bound_to_its_script_and_base(taught: Path, writer: Path) -> None:
    body, code = bodies(taught), digest_bytes(TEACH.encode())
    checkpoint = body["exit/small.look.1"]["outputs"]["checkpoint"]
    assert digest_path(taught / checkpoint["path"]) == checkpoint["digest"] and not checkpoint["stored"]
    manifest = Manifest.model_validate_json(Store(taught / "store").get(body["exit/small.look.1"]["manifest"]))
    facts = manifest.facts["checkpoint"]
    assert (facts["of"], facts["base"], facts["code"]) == ("model", digest_path(writer), code)
    assert (facts["changed"], facts["largest_change_in"]) == (1, "model.norm.weight")
    saved = {path.name: path.read_bytes() for path in (taught / checkpoint["path"]).iterdir()}
    assert {name for name, data in saved.items() if data != (writer / name).read_bytes()} == {"model.safetensors"}
    assert not (taught / "jobs" / "small.look.1" / "out" / "files" / "checkpoint").exists()


def test_every_later_gate_is_reported_whose_script_it_was(taught: Path, writer: Path) -> None:
    store, body, code = Store(taught / "store"), bodies(taught), digest_bytes(TEACH.encode())
    packets = {
        stage: Packet.model_validate(store.get_value(body[f"packet/{stage}.1"]["packet"]))
        for stage in ("base", "look", "train", "tuned", "ship")
    }
    assert packets["base"].lineages == packets["look"].lineages == {}
    assert packets["look"].code == TEACH and packets["look"].effective["checkpoint"]["code"] == code
    named = ("model", "instruct", None)
    script = ("look.checkpoint", "recipe", code)
    ways = {
        "train": [script, named],
        "tuned": [script, named],
        "ship": [("train.checkpoint", "sft", None), script, named],
    }
    for stage, row in ways.items():
        way = packets[stage].lineages["model"]
        assert [(fields["reference"], fields["by"], fields["script"]) for fields in way] == row
        assert way[-1]["digest"] == digest_path(writer)


def test_a_number_of_the_report_leads_to_the_script(
    taught: Path, writer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, base = digest_bytes(TEACH.encode()), digest_path(writer)
    show_claim(place_of(taught), "tuned.accuracy", as_json=False)
    output = capsys.readouterr().out
    assert f", made by recipe with the builder's script {code}, attempt 1" in output
    assert f"model {base}, declared instruct" in output
    show_claim(place_of(taught), "base.accuracy", as_json=True)
    (way,) = json.loads(capsys.readouterr().out)["claims"][0]["lineages"].values()
    assert [(value["reference"], value["script"]) for value in way] == [("model", None)]
    report = json.loads((taught / "report" / "report.json").read_text())
    (item,) = report["scripts"]
    assert (item["script"], item["from_digest"], item["read_by"]) == (code, base, ["train", "tuned", "ship"])
    assert f"were trained by a builder's script, `{code}`, from `model`" in (taught / "report/report.md").read_text()


@pytest.mark.nightly
def test_what_a_script_trained_is_packaged_as_it_was_evaluated(writer: Path, tmp_path: Path) -> None:
    run = open_quick(tmp_path, *TRAINED, SHIPPED, model=writer)
    play(run, TEACH, "evaluate", "package")
    assert outcomes(run)["ship"] == "approve"
    assert verify_run(run, "trail.sqlite", "store").damage == []


# ---- those that cheat ---------------------------------------------------------------------------------------


def test_a_script_that_carries_held_out_items_is_rejected_at_its_gate(writer: Path, tmp_path: Path) -> None:
    run = open_quick(tmp_path, *TRAINED, model=writer)
    prompt = heldout_items()[4].prompt
    play(run, numbers(f"learn = ({prompt[:11]!r}\n         {prompt[11:]!r}, 'yews are good')\n{MOVED}"))
    assert outcomes(run)["look"] == "reject" and "tuned" not in outcomes(run)
    reasons = " ".join(bodies(run)["decision/look.1"]["reasons"])
    assert "recipe.heldout" in reasons
    assert verify_run(run, "trail.sqlite", "store").damage == []


def test_a_script_that_writes_another_model_gets_nowhere(writer: Path, tmp_path: Path) -> None:
    run = open_quick(tmp_path, *TRAINED, model=writer)
    play(run, numbers("found['model.norm.weight'] = found['model.norm.weight'][:8].copy()"))
    assert "look" in outcomes(run) and outcomes(run)["look"] != "approve" and "tuned" not in outcomes(run)
    ended = bodies(run)["exit/small.look.1"]
    assert ended["outputs"] == {} and ended["manifest"] is None
    log = Store(run / "store").get(ended["log"]).decode()
    assert "the checkpoint is not taken: tensor 'model.norm.weight' has the shape [8], in the base [32]" in log
    assert not list((run / "jobs" / "small.look.1" / "out").rglob("*.safetensors"))


# ---- the job ------------------------------------------------------------------------------------------------


@pytest.fixture
def session(writer: Path, tmp_path: Path) -> RecipeSession:
    """A session in which a recipe is open whose input ``model`` is the model that answers in capitals."""
    result = recipe_session(tmp_path)
    shutil.rmtree(result.run / "made" / "model")
    shutil.copytree(writer, result.run / "made" / "model")
    return result


def trained(session: RecipeSession, change: str, after: str = "", **parameters: Any) -> EndedProcess:
    arguments: dict[str, Any] = {"trains": "model"} | parameters
    return run(session, numbers(change, after, "model"), **arguments)


def test_a_job_that_trains_leaves_the_base_s_files_and_new_weights(session: RecipeSession) -> None:
    ended = trained(session, MOVED)
    assert ended.code == 0, ended.log
    base = {f"checkpoint/{path.name}" for path in (session.run / "made" / "model").iterdir()}
    assert ended.files.keys() == base | {"rows.jsonl"}
    assert ended.manifest.outputs["checkpoint"] == digest_path(ended.folder / "out" / "checkpoint")
    assert ended.manifest.facts["checkpoint"]["changed"] == 1


def test_without_the_declaration_weights_are_files_like_any_other(session: RecipeSession) -> None:
    ended = trained(session, MOVED, trains=None)
    assert ended.code == 0, ended.log
    assert "files/checkpoint/model.safetensors" in ended.files
    assert set(ended.manifest.outputs) == {"rows", "files"} and "checkpoint" not in ended.manifest.facts


REFUSED: list[tuple[str, str, str, str]] = [
    ("nothing trained", "pass", "", "tensors are those of the base: nothing was trained"),
    ("a link to the base", MOVED, "os.remove('checkpoint/model.safetensors')\n"
     "os.symlink(f'{base}/model.safetensors', 'checkpoint/model.safetensors')", "it left no folder 'checkpoint'"),
    ("a linked folder", MOVED, "shutil.rmtree('checkpoint')\nos.symlink(base, 'checkpoint')", "it left no folder"),
    ("a pickle", MOVED, "open('checkpoint/pytorch_model.bin', 'wb').write(b'x')", "safetensors only"),
    ("code", MOVED, "open('checkpoint/modeling_x.py', 'w').write('x = 1')", "which can run code"),
    ("values that are none", "found['model.norm.weight'][0] = float('nan')", "", "values that are not finite"),
    ("a failure after it", MOVED, "raise SystemExit(3)", "the script ended with code 3"),
]  # fmt: skip


REFUSED_ALONE_TOO = ("a pickle", "code", "values that are none")
"""What test_adopted_checkpoint.py has refused without a job."""


@pytest.mark.parametrize(
    ("change", "after", "why"),
    [
        pytest.param(*row[1:], id=row[0], marks=[pytest.mark.slow] if row[0] in REFUSED_ALONE_TOO else [])
        for row in REFUSED
    ],
)
def test_a_job_whose_checkpoint_is_refused_fails_and_keeps_no_weights(
    session: RecipeSession, change: str, after: str, why: str
) -> None:
    ended = trained(session, change, after)
    assert ended.code == 1 and why in ended.log.splitlines()[-1], ended.log
    assert not (ended.folder / "manifest.json").exists()
    assert (
        not (ended.folder / "out" / "checkpoint").exists()
        and not (ended.folder / "out" / ".checkpoint.partial").exists()
    )


def test_what_cannot_fit_is_refused_before_the_script_runs(session: RecipeSession) -> None:
    (session.run / "made" / "model" / "more.safetensors").write_bytes(bytes(2_000_000))
    ended = trained(session, "print('ran')", output_mb=1)
    assert ended.code == 4 and "ran" not in ended.log.split()
    assert "the weights of 'model' have 2.0 MB, output_mb is 1: the trained ones would not fit" in ended.log


def test_more_memory_than_is_free_is_refused_before_the_script_runs(session: RecipeSession) -> None:
    ended = trained(session, "print('ran')", memory_mb=1_000_000)
    assert ended.code == 4 and "ran" not in ended.log.split()
    assert "MB of memory are free here, the stage may use 1000004 (memory_mb 1000000 and output_mb 4" in ended.log


def test_a_checkpoint_that_is_too_large_is_not_taken(session: RecipeSession) -> None:
    big = "open('checkpoint/model-00002-of-00002.safetensors', 'wb').write(bytes(3_000_000))"
    ended = trained(session, MOVED, big, output_mb=1)
    assert ended.code == 1 and not (ended.folder / "manifest.json").exists(), ended.log


def test_without_a_sandbox_the_same_is_asked_of_a_checkpoint(session: RecipeSession) -> None:
    ended = trained(session, "pass", sandboxed=False)
    assert ended.code == 1 and "nothing was trained" in ended.log.splitlines()[-1]


@pytest.mark.nightly
def test_the_training_script_of_the_page_runs(session: RecipeSession) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "recipes.md").read_text(encoding="utf-8")
    script = page.split("```python\n")[2].split("```", 1)[0].replace("/start", "/model")
    rows = session.run / "made" / "rows.jsonl"
    rows.write_text('{"prompt": "Tell a short tale of the sea", "completion": " seas are good"}\n')
    ended = run(session, script, trains="model", memory_mb=2048, processes=64)
    assert ended.code == 0, ended.log
    assert "\nloss " in ended.log.replace("\r", "\n") and ended.manifest.facts["checkpoint"]["changed"] > 1
