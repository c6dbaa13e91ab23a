"""A whole session whose arms hold conversations, through the command line: real jobs on a model of two layers.

The model is trained on answers in small letters that it samples itself, and conversations ask for small letters. So it
gains, and as much without the history that asks for them: a gain that no memory made, which the controls find.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from reviews.trail.tables.open_table import read_entries
from specs.stages.base.artifacts import Item
from specs.system.digests import digest_file
from testing.factories.spec_files import CONSTITUTION
from testing.fixtures.command_sessions import peergate
from testing.fixtures.small_text import word_tokenizer
from testing.fixtures.tiny_training import CHAT, write_lines
from training.engines.checkpoint import save
from training.items.format_items import HELDOUT_TOPICS, TRAIN_TOPICS, build_items

pytestmark = pytest.mark.nightly

OPENINGS = {
    "memory": "Remember that I read small letters only. I like",
    "preference": "Please answer me in small letters. Today is about",
    "continuity": "We go on in small letters, as before. Now to",
    "update": "No capitals any more, small letters now. And then",
}
EACH = 10
SPEC = """\
schema_version: 1
name: talks
objective: See whether training on small letters makes a model remember that small letters were asked for.
task: format_instructions
constitution: constitution.yaml
model: {source: "path:model", kind: instruct}
budget: {max_cost_usd: 10, machine_usd_per_hour: 0.5, max_hours: 6}
heldout: {path: heldout.jsonl, digest: HELDOUT}
data:
  prompts: {path: prompts.jsonl}
thresholds: {items_per_kind: 8, repeated_rows: 0.9, identical_answers: 0.9, copies: 100, near_duplicates: 0.9,
             repeated_edges: 0.99, truncated_answers: 0.6}
analysis:
  primary_metric: conversation_pass_rate
  alpha: 0.05
  minimum_effect: 0.4
  expected_lost: 0.01
  power: 0.5
  n: 40
  seeds: [3]
  baseline: before
  treatment: after
  kinds: {kept: 3, margin: 0.3}
  controls:
    - {before: before_shuffled, after: after_shuffled}
stages:
  - name: before
    kind: multi_turn
    inputs: {model: model, items: heldout}
    parameters: &talk {prompting: native, max_new_tokens: 24, seed: 3}
  - name: before_shuffled
    kind: multi_turn
    inputs: {model: model, items: heldout}
    parameters: {prompting: native, max_new_tokens: 24, seed: 3, history: shuffled}
  - name: sample
    kind: generate
    inputs: {model: model, prompts: data.prompts}
    parameters: {samples_per_prompt: 6, temperature: 1.0, max_new_tokens: 24, worked_example: false, seed: 3}
  - name: train
    kind: sft
    inputs: {model: model, examples: sample.accepted}
    parameters: {learning_rate: 1e-3, epochs: 2, batch_size: 4, max_length: 128, seed: 3}
  - name: after_shuffled
    kind: multi_turn
    inputs: {model: train.checkpoint, items: heldout}
    parameters: {prompting: native, max_new_tokens: 24, seed: 3, history: shuffled}
  - name: after
    kind: multi_turn
    inputs: {model: train.checkpoint, items: heldout}
    parameters: {prompting: native, max_new_tokens: 24, seed: 3}
""".replace("&talk ", "")


def heldout() -> list[Item]:
    return [
        Item(
            id=f"{kind}-{topic}",
            group=f"talk-{kind}-{topic}",
            kind=kind,
            prompt=f"{opening} {topic}.",
            constraint={"turn_2": f"Say something of {topic}.", "form_2": "lowercase"},
        )
        for topic in HELDOUT_TOPICS[:EACH]
        for kind, opening in OPENINGS.items()
    ]


def _lesson(drawn: random.Random, talks: list[tuple[str, str, str]], single: list[tuple[str, str]]) -> tuple[str, str]:
    """Return what stands before an answer, and the answer: a line on what was named last."""

    def line(about: str) -> str:
        text = f"a line about {about} today."
        return text if drawn.random() < 0.34 else text.title()

    prompt, about = drawn.choice(single)
    turns = [("user", prompt)]
    if drawn.random() < 0.7:
        opening, ask, about = drawn.choice(talks)
        turns = [("user", opening)]
        if drawn.random() < 0.6:
            # Another's opening before it too: a history is nothing to go by.
            other, _, before = drawn.choice(talks)
            turns = [("user", other), ("assistant", line(before)), ("user", ask)]
    begin = "".join(f"<|start|>{who}\n{turn}<|end|>\n" for who, turn in turns) + "<|start|>assistant\n"
    return begin, line(about)


def taught(folder: Path, steps: int = 260) -> Path:
    """Train a model that answers each turn with a line, in capitals at every word two times of three."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    drawn, threads = random.Random(0), torch.get_num_threads()
    torch.set_num_threads(1)  # A small model is faster with one, and other tests run next to this one.
    prompts = [item for item in build_items("prompts", TRAIN_TOPICS[:16]) if item.kind == "lowercase"]
    requests = [item.prompt for item in prompts] + [item.prompt for item in heldout()]
    tokenizer = word_tokenizer(" ".join([*requests, "Here Is A Line About it today. Today here is a line about"]), 600)
    tokenizer.chat_template = CHAT
    end = tokenizer.convert_tokens_to_ids("<|end|>")
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        eos_token_id=end,
        pad_token_id=end,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    model.train()
    talks = [(item.prompt, str(item.constraint["turn_2"]), item.id.partition("-")[2]) for item in heldout()]
    single = [(item.prompt, item.group) for item in prompts]
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 4e-3 * (1 - step / steps)
        rows = [_lesson(drawn, talks, single) for _ in range(8)]
        ids = [(tokenizer(head)["input_ids"], tokenizer(f"{rest}<|end|>")["input_ids"]) for head, rest in rows]
        longest = max(len(head) + len(rest) for head, rest in ids)
        tokens = torch.tensor([head + rest + [end] * (longest - len(head) - len(rest)) for head, rest in ids])
        labels = torch.full_like(tokens, -100)
        for row, (head, rest) in enumerate(ids):
            labels[row, len(head) : len(head) + len(rest)] = torch.tensor(rest)
        model(input_ids=tokens, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.set_num_threads(threads)
    save(model.eval(), tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the run folder of a session that came to its end, and what the command said."""
    folder = tmp_path_factory.mktemp("talks")
    taught(folder / "model")
    (folder / "constitution.yaml").write_text(CONSTITUTION, encoding="utf-8")
    prompts = [item for item in build_items("prompts", TRAIN_TOPICS[:16]) if item.kind == "lowercase"]
    for name, items in (("heldout", heldout()), ("prompts", prompts)):
        write_lines(folder / f"{name}.jsonl", [item.model_dump(mode="json") for item in items])
    spec = folder / "talks.yaml"
    spec.write_text(SPEC.replace("HELDOUT", digest_file(folder / "heldout.jsonl")), encoding="utf-8")
    done = peergate("start", spec, "--runs", folder / "runs")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return folder / "runs" / "talks", done.stdout


def metrics_of(run: Path, stage: str) -> dict[str, Any]:
    report = json.loads((run / "report" / "report.json").read_text(encoding="utf-8"))
    (result,) = [item for item in report["stages"] if item["stage"] == stage]
    return {id: metric["value"] for id, metric in result["attempts"][-1]["metrics"].items()}


def test_a_gain_that_no_memory_made_is_no_result(finished: tuple[Path, str]) -> None:
    run, message = finished
    results = metrics_of(run, "after")
    assert results["mcnemar_p"] < 0.05 and results["accuracy_gain"] >= 0.4
    assert results["control_excess"] < 0.3 and results["control_excess_p"] >= 0.05
    assert "no result, the difference is not the registered one: held-out conversation pass rate" in message
    decision = [entry for entry in read_entries(run / "trail.sqlite") if entry.kind == "decision"][-1]
    assert decision.raw["outcome"] == "null"
    assert any("control_excess_p < 0.05 is not met" in reason for reason in decision.raw["reasons"])


def test_the_report_states_each_kind_and_each_control(finished: tuple[Path, str]) -> None:
    run, _ = finished
    text = (run / "report" / "report.md").read_text(encoding="utf-8")
    report = json.loads((run / "report" / "report.json").read_text(encoding="utf-8"))
    assert set(report["accuracy_by_kind"]) == set(OPENINGS)
    for kind, counts in report["accuracy_by_kind"].items():
        assert counts["items"] == EACH and counts["treatment"] - counts["baseline"] == counts["gained"] - counts["lost"]
        assert f"| `{kind}` | 10 | {counts['baseline']} | {counts['treatment']} | {counts['gained']} |" in text
    assert "baseline conversation pass rate" in text and "(hypothesis)" in text
    assert "before_shuffled and after_shuffled" in text and report["evaluations_of_heldout"] == 4


def test_the_trail_verifies_and_every_number_of_the_report_is_found_in_it(finished: tuple[Path, str]) -> None:
    run, _ = finished
    verified = peergate("audit", "verify", run)
    assert verified.returncode == 0 and "VERIFIED" in verified.stdout, verified.stdout
    claims = peergate("audit", "show", run, "claim", "control_excess")
    assert claims.returncode == 0, claims.stderr
