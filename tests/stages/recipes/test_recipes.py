"""Code of a builder up to the sandbox: what a spec may allow, what is taken in, what the launcher admits."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.evidence.evidence import Evidence
from reviews.gate.grants import mint
from reviews.gate.measurer import measure
from reviews.gate.packet import build_packet
from reviews.trail.chain.store import Store
from sessions.jobs.launcher import submit
from sessions.jobs.sandbox import code_admission, sandbox
from sessions.jobs.sandbox.code_admission import keep_recipe
from sessions.jobs.wrapper import stage_command
from specs.jobs.job_records import JobOrder
from specs.stages.recipes.script_file import SCRIPT_BYTES
from specs.stages.registry import STAGE_KINDS, resolve_parameters
from specs.system.confinement import bubblewrap
from specs.system.digests import digest_bytes
from specs.system.errors import AuditDamage, BlockedError, EvidenceMissing, InvalidGrant, PeergateError, UserError
from testing.factories.evidence_on_disk import evidence_of
from testing.factories.recipe_session import RECIPE, STAGE, RecipeSession, recipe_session
from testing.factories.spec_files import list_problems, loads, write_spec

SCRIPT = "print('a script')\n"
HOST = bubblewrap.Host("/usr/bin/bwrap", (("/usr", ""),), "/usr/bin/python3", ())


class Nowhere:
    """A launcher that only says what it was told to start."""

    name = "nowhere"

    def __init__(self) -> None:
        self.started: list[Path] = []

    def start(self, folder: Path) -> None:
        self.started.append(folder)


@pytest.fixture
def session(tmp_path: Path) -> RecipeSession:
    return recipe_session(tmp_path)


@pytest.fixture
def why(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return whether this machine has a sandbox, whatever it has."""

    def say(reason: str) -> None:
        monkeypatch.setattr(sandbox, "why_not", lambda host: reason)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]

    monkeypatch.setattr(bubblewrap, "this_host", lambda: HOST)
    say("")
    return say


def launch(session: RecipeSession, order: JobOrder) -> Path:
    """Submit an order and return the job folder it was started in."""
    launcher: Any = Nowhere()
    submit(launcher, session.trail, session.run, order, session.resolved.registration())
    (folder,) = launcher.started
    return folder


def refused(session: RecipeSession, order: JobOrder, error: type[PeergateError]) -> str:
    """Submit an order that is refused, and see that it left nothing."""
    launcher: Any = Nowhere()
    with pytest.raises(error) as caught:
        submit(launcher, session.trail, session.run, order, session.resolved.registration())
    assert launcher.started == [] and session.trail.find(f"launch/{order.key}") is None
    assert not (session.run / "jobs" / order.key / code_admission.SCRIPT).exists()
    return str(caught.value)


# ---- the spec -----------------------------------------------------------------------------------------------


def test_a_recipe_may_read_anything_but_what_shows_held_out_items(tmp_path: Path) -> None:
    inputs = "{rows: sample.rows, kept: sample.accepted, prompts: data.prompts, weights: model}"
    stage = STAGE.replace("{rows: sample.rows, prompts: data.prompts, model: model}", inputs)
    spec = loads(write_spec(tmp_path, RECIPE[0], ("  - name: train\n", f"{stage}  - name: train\n"))).spec
    assert spec.stage("look").inputs == {
        "rows": "sample.rows",
        "kept": "sample.accepted",
        "prompts": "data.prompts",
        "weights": "model",
    }


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("rows: sample.rows", "rows: heldout", "the held-out split is not for recipe stages"),
        ("rows: sample.rows", "rows: base.rows", "'base.rows' holds answers to held-out items"),
        ("rows: sample.rows", "rows: train.rows", "'train.rows' points to stages[3], which comes later"),
        ("rows: sample.rows", "rows: sample.row", "stage 'sample' (generate) has no output 'row'"),
        ("rows: sample.rows", '"../x": sample.rows', "'../x' cannot be the name of an input"),
        ("    allow_code: true\n", "", "a recipe runs code that the builder hands in, and the stage does not allow it"),
        (
            "seed: 7}\n    max",
            f"seed: 7, code: '{digest_bytes(b'')}'}}\n    max",
            "the builder hands in the code of a recipe",
        ),
    ],
)
def test_a_recipe_that_breaks_the_wall_cannot_be_registered(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert STAGE.count(old) == 1
    stage = STAGE.replace(old, new)
    problems = list_problems(write_spec(tmp_path, RECIPE[0], ("  - name: train\n", f"{stage}  - name: train\n")))
    assert len(problems) == 1 and problem in problems[0]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("evaluate\n    inputs: {model: model,", "evaluate reads held-out items"),
        ("package", "package reads held-out items"),
        ("sft", "sft is judged by what Peergate's own code reads back"),
        ("generate", "generate is judged by what Peergate's own code reads back"),
    ],
)
def test_no_other_kind_of_stage_runs_code(tmp_path: Path, kind: str, why: str) -> None:
    name = kind.split()[0]
    path = write_spec(tmp_path, (f"kind: {kind}", kind.replace(name, f"kind: {name}\n    allow_code: true", 1)))
    problems = list_problems(path)
    assert len(problems) == 1 and why in problems[0]


def test_a_builder_without_a_model_cannot_be_given_a_recipe(tmp_path: Path) -> None:
    problems = list_problems(write_spec(tmp_path, RECIPE[1]))
    assert len(problems) == 1 and "'playbook' writes no code" in problems[0]


def test_the_page_on_recipes_shows_stages_that_load(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "recipes.md").read_text(encoding="utf-8")
    own, trainer, built = (part.split("```", 1)[0] for part in page.split("```yaml\n")[1:4])
    spec = loads(write_spec(tmp_path, RECIPE[0], ("  - name: train\n", f"{built}  - name: train\n"))).spec
    assert spec.stage("look").allow_code
    (tmp_path / "train.py").write_text("pass\n", encoding="utf-8")
    own = own.replace("data.train", "data.prompts")
    spec = loads(write_spec(tmp_path, ("  - name: train\n", f"{own}  - name: train\n"))).spec
    assert spec.stage("teach").script and spec.stage("teach").parameters.trains == "start"
    (tmp_path / "sft.yaml").write_text("model_name_or_path: x\nlearning_rate: 1e-5\n", encoding="utf-8")
    trainer = trainer.replace("data.train", "data.prompts").replace("output_mb: 1024", "output_mb: 1024, seed: 7")
    assert "script: sft.yaml" in trainer
    write_spec(tmp_path, ("  - name: train\n", f"{trainer}  - name: train\n"))


def test_specs_without_code_are_registered_as_before(tmp_path: Path) -> None:
    resolved = loads(write_spec(tmp_path))
    assert "allow_code" not in resolved.canonical().decode()


def test_code_is_a_parameter_that_only_a_stage_with_code_takes(tmp_path: Path) -> None:
    spec = loads(write_spec(tmp_path, *RECIPE)).spec
    digest = digest_bytes(b"x")
    parameters = resolve_parameters(spec.stage("look"), {"code": digest})
    assert parameters.model_dump()["code"] == digest
    for stage, changes, problem in (
        ("look", {}, "none was handed in"),
        ("look", {"memory_mb": 5}, "none was handed in"),
        ("look", {"code": digest, "memory_mb": 5000}, "no allowed range"),
        ("look", {"code": None}, "not the digest of a script"),
        ("look", {"code": f"{digest}\n"}, "not the digest of a script"),
        ("look", {"code": "../recipe.py"}, "not the digest of a script"),
        ("train", {"code": digest}, "does not allow code"),
    ):
        with pytest.raises(ValueError, match=problem):
            resolve_parameters(spec.stage(stage), changes)
    forbidden = spec.stage("look").model_copy(update={"allow_code": False})
    with pytest.raises(ValueError, match="does not allow code"):
        resolve_parameters(forbidden, {"code": digest})


# ---- handing it in ------------------------------------------------------------------------------------------


def test_a_script_is_kept_under_its_digest(tmp_path: Path) -> None:
    store = Store(tmp_path)
    digest = keep_recipe(store, SCRIPT)
    assert digest == digest_bytes(SCRIPT.encode()) and store.get(digest) == SCRIPT.encode()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def f(:\n", "line 1: "),
        ("x = 1\nreturn 2\n", "line 2: not valid Python: 'return' outside function"),
        ("\udc80", "is not text"),
        ("x = '\x00'", "null bytes"),
        ("", "holds no statement"),
        ("# nothing but a comment\n", "holds no statement"),
        ("(" * 3000, "parenthes"),
        ("-" * 20000 + "1", "cannot be compiled"),
        ("#" * SCRIPT_BYTES + "\nx = 1", f"the limit is {SCRIPT_BYTES}"),
    ],
)
def test_what_is_no_script_is_not_kept(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        keep_recipe(Store(tmp_path / "store"), text)
    assert not (tmp_path / "store").exists()


def test_a_script_is_not_run_when_it_is_taken_in(tmp_path: Path) -> None:
    keep_recipe(Store(tmp_path), f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit")
    assert not (tmp_path / "ran").exists()


# ---- the launcher -------------------------------------------------------------------------------------------


def test_an_admitted_script_lies_in_the_job_folder(session: RecipeSession, why: Callable[[str], None]) -> None:
    folder = launch(session, session.look(SCRIPT))
    assert (folder / code_admission.SCRIPT).read_text() == SCRIPT
    assert not (folder / code_admission.ALLOWED).exists()


def test_a_recipe_is_started_next_to_its_sandbox(session: RecipeSession) -> None:
    command = stage_command(session.look(SCRIPT), Path("/job"))
    assert command[1:] == ["-P", "-m", "training.jobs", "/job"]
    assert STAGE_KINDS["recipe"].job == "sessions.jobs.sandbox.recipe_job:recipe"


def test_code_changed_after_the_grant_is_refused(session: RecipeSession, why: Callable[[str], None]) -> None:
    order = session.look(SCRIPT)
    other = keep_recipe(session.store, "print('another script')\n")
    changed = order.model_copy(update={"parameters": order.parameters | {"code": other}})
    assert "parameters" in refused(session, changed, InvalidGrant)


def test_code_that_was_never_handed_in_is_refused(session: RecipeSession, why: Callable[[str], None]) -> None:
    order = session.look("", digest=digest_bytes(SCRIPT.encode()))
    assert "is not in the content store" in refused(session, order, EvidenceMissing)


def test_code_edited_in_the_store_is_refused(session: RecipeSession, why: Callable[[str], None]) -> None:
    order = session.look(SCRIPT)
    session.store.path(order.parameters["code"]).write_text("print('edited')\n")
    assert "stored bytes" in refused(session, order, AuditDamage)


def test_a_second_grant_for_other_code_is_refused(session: RecipeSession) -> None:
    session.look(SCRIPT)
    other = keep_recipe(session.store, "print('another script')\n")
    artifacts = session.inputs()
    with pytest.raises(InvalidGrant, match="another grant is already recorded"):
        mint(
            session.trail,
            session.resolved,
            changes={"code": other},
            inputs={role: artifact.digest for role, artifact in artifacts.items()},
            model=artifacts["model"].digest,
            price_cap_usd=0.5,
        )


def test_held_out_items_under_another_name_are_not_granted_to_code(session: RecipeSession) -> None:
    session.look(SCRIPT)
    digest = session.resolved.data_digests["heldout"]
    with pytest.raises(InvalidGrant, match="held-out items"):
        mint(
            session.trail,
            session.resolved,
            changes={"code": keep_recipe(session.store, SCRIPT)},
            inputs={"rows": digest},
            model=digest,
            price_cap_usd=0.5,
        )


def test_without_a_sandbox_nothing_starts_and_a_person_is_reported_how(
    session: RecipeSession, why: Callable[[str], None]
) -> None:
    why("bubblewrap (bwrap) is not installed")
    message = refused(session, session.look(SCRIPT), BlockedError)
    assert "without a sandbox: bubblewrap (bwrap) is not installed" in message
    assert "peergate override small " in message and "--check recipe.sandbox --stage look --reason WHY" in message


@pytest.mark.parametrize(
    ("override", "allowed"),
    [
        ({"check": "recipe.sandbox", "stage": "look"}, True),
        ({"check": "recipe.sandbox", "stage": "look", "expires": 4e9}, True),
        ({"check": "recipe.sandbox", "stage": "look", "expires": 1.0}, False),
        ({"check": "recipe.sandbox", "stage": "train"}, False),
        ({"check": "recipe.heldout", "stage": "look"}, False),
    ],
)
def test_only_an_override_of_the_check_for_the_stage_allows_it(
    session: RecipeSession, why: Callable[[str], None], override: dict[str, Any], allowed: bool
) -> None:
    why("bubblewrap (bwrap) is not installed")
    order = session.look(SCRIPT)
    session.append("override", "override/1", **({"expires": None} | override), reason="a throwaway machine")
    if not allowed:
        refused(session, order, BlockedError)
        return
    folder = launch(session, order)
    assert (folder / code_admission.ALLOWED).read_text() == "ada: a throwaway machine"


def test_a_permission_from_before_does_not_outlive_the_sandbox(
    session: RecipeSession, why: Callable[[str], None]
) -> None:
    order = session.look(SCRIPT)
    folder = session.run / "jobs" / order.key
    folder.mkdir(parents=True)
    (folder / code_admission.ALLOWED).write_text("once")
    launch(session, order)
    assert not (folder / code_admission.ALLOWED).exists()


def test_a_run_folder_that_the_sandbox_would_show_is_refused(
    session: RecipeSession, why: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "this_host", lambda: HOST._replace(environment=(str(session.run.parents[1]),)))
    message = refused(session, session.look(SCRIPT), BlockedError)
    assert f"the sandbox would show {session.run.parent}" in message and "heldout.jsonl" in message


# ---- the gate -----------------------------------------------------------------------------------------------


def test_nothing_a_recipe_states_becomes_a_metric(tmp_path: Path) -> None:
    measured = measure(evidence_of(tmp_path, "look"))
    assert measured.metrics == {} and set(measured.rows) == {"look"}


def spoiled(evidence: Evidence, text: str) -> Evidence:
    evidence.outputs["rows"].write_text(text, encoding="utf-8")
    return evidence


@pytest.mark.parametrize("text", ["[1]\n", "no\n", '{"a": NaN}\n', '{"a": 1}\n\n', "[" * 100_000])
def test_rows_that_are_no_objects_are_missing_evidence(tmp_path: Path, text: str) -> None:
    with pytest.raises(EvidenceMissing, match="line"):
        measure(spoiled(evidence_of(tmp_path, "look"), text))


def test_the_reviewer_reads_the_script_and_the_rows_as_claims(tmp_path: Path) -> None:
    evidence = replace(evidence_of(tmp_path, "look"), code="print('\x1b[2Jhi')\nprint(2)\n")
    packet = build_packet(evidence, None, (), checks_digest=digest_bytes(b""), claims=())
    assert packet.code.startswith("print('") and "print(2)" in packet.code and "\x1b" not in packet.code
    (row,) = packet.sample_rows
    assert json.loads(row["claimed"]) == {"claim": "half of the rows are short", "value": 0.5}
    other = build_packet(evidence_of(tmp_path, "train"), None, (), checks_digest=digest_bytes(b""), claims=())
    assert other.code == ""
