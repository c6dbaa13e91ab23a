"""The judge of ``recipe`` stages: did the code stay in its sandbox, leave what can be kept, and hold no held-out items?

Rows are claims.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reviews.checks.definition import CheckOutcome, CheckRegistry, join_names, manifest_of
from reviews.checks.leakage_checks import SIMILARITY
from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import MeasuredValue
from reviews.evidence.row_reader import ROW_CHARACTERS, read_objects
from reviews.evidence.text_overlap import find_overlaps
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import MetricSet
from specs.system.digests import list_tree
from specs.system.errors import EvidenceMissing
from specs.system.regular_files import read_regular
from specs.system.text import plain

SANDBOX = "recipe.sandbox"
"""A person who lifts this check for a stage allows its code to run without a sandbox."""
CHECKS = CheckRegistry(("recipe",))
_SHORTEST = 12
"""Shorter prompts and answers occur in any text."""
_ANSWERS = 2
"""From the answers to so many items on, they are not coincidence."""
_SCRIPT = "script"


def measure(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return nothing, of rows that can be read: what a builder's code computes is a claim."""
    read_objects(evidence.outputs.get("rows"), "recipe rows")
    return {}


def summarise_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return a recipe's rows as text: their names and values are the builder's own."""
    rows = read_objects(evidence.outputs.get("rows"), "recipe rows")
    return [{"claimed": plain(json.dumps(row, ensure_ascii=False), ROW_CHARACTERS)} for row in rows]


@CHECKS.add(SANDBOX, "The builder's code ran in a sandbox", source="agents that read the answers")
def _check_sandbox(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Read the manifest, which Peergate's own process next to the sandbox wrote."""
    sandbox = manifest_of(evidence).facts.get("sandbox")
    if not isinstance(sandbox, str) or not sandbox:
        raise EvidenceMissing("the manifest does not say what the script ran in")
    if sandbox == "none":
        return CheckOutcome("FAIL", "the script ran without a sandbox", repairable=False)
    return CheckOutcome("PASS", f"the script ran in {sandbox}")


@CHECKS.add("recipe.kept", "All outputs were kept", source="links out of a sandbox", blocking=False)
def _check_kept(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    facts = manifest_of(evidence).facts
    links, log = facts.get("left_out"), facts.get("log_bytes_left_out")
    if not isinstance(links, int) or not isinstance(log, int):
        raise EvidenceMissing("the manifest does not list the omitted rows")
    if links or log:
        return CheckOutcome(
            "WARN", f"not kept: {links} links, pipes or devices, and {log} bytes of the log", float(links)
        )
    return CheckOutcome("PASS", f"all of {facts.get('files')} files and the whole log were kept", 0.0)


@CHECKS.add("recipe.rows", "The rows are complete", source="claims without a form")
def _check_rows(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    rows = read_objects(evidence.outputs.get("rows"), "recipe rows")
    return CheckOutcome("PASS", f"{len(rows)} rows, which are claims: nothing is measured from them", float(len(rows)))


@CHECKS.add(
    "recipe.heldout",
    "Script and output hold nothing held-out",
    source="held-out items read by agents",
    limits=SIMILARITY,
)
def _check_heldout(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Look for held-out prompts in the script and in everything it left, for answers and near prompts in the script.

    Case and spacing do not count. Prompts that someone encoded are not found: the sandbox has to keep them away.
    """
    folder, rows = evidence.outputs.get("files"), evidence.outputs.get("rows")
    if folder is None or rows is None or not folder.is_dir() or not rows.is_file():
        raise EvidenceMissing("the recipe's files are missing")
    if not evidence.code:
        raise EvidenceMissing("the recipe's script is not on record")
    prompts = {item.id: _flat(item.prompt) for item in evidence.reserved_items}
    texts = [("log", evidence.log_tail), *((path.name, _text(path)) for path in (rows, *list_tree(folder)))]
    strings = _strings(evidence.code)
    written = [evidence.code, " ".join(strings), "".join(strings)]
    texts += [(_SCRIPT, text) for text in written]
    visible: list[dict[str, str]] = []
    for name, text in texts:
        flat = _flat(text)
        visible += [
            {"file": name, "item": id} for id, prompt in prompts.items() if len(prompt) >= _SHORTEST and prompt in flat
        ]
    visible += [{"file": _SCRIPT, "item": id} for id in _near(evidence, strings)]
    visible = list({(value["file"], value["item"]): value for value in visible}.values())
    if visible:
        message = join_names(f"{value['item']} in {value['file']}" for value in visible)
        detail = f"held-out prompts are in the script or in what it left: {message}"
        return CheckOutcome("FAIL", detail, float(len(visible)), tuple(visible), repairable=False)
    answered = [item.id for item in evidence.reserved_items if _answers(item, written)]
    if answered:
        detail = f"the script holds the answers to held-out items {join_names(answered)}"
        many = len(answered) >= _ANSWERS
        return CheckOutcome("FAIL" if many else "WARN", detail, float(len(answered)), repairable=False)
    return CheckOutcome("PASS", f"none of {len(prompts)} held-out prompts is in {len(texts)} texts", 0.0)


def _strings(code: str) -> list[str]:
    """Return every string a script writes out, in its order, those of several lines in one.

    None if it is not a script.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    values = [node.value for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset))]
    texts = [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values]
    return [text for text in texts if isinstance(text, str)]


def _near(evidence: Evidence, strings: list[str]) -> Iterator[str]:
    """Yield the items whose prompt is nearly one of the strings."""
    pairs = [(item.id, item.prompt) for item in evidence.reserved_items]
    written = [(str(number), string) for number, string in enumerate(strings) if len(string) >= _SHORTEST]
    thresholds = evidence.resolved.spec.thresholds
    near = find_overlaps(written, pairs, threshold=thresholds.prompt_similarity, contained=thresholds.contained_words)
    yield from dict.fromkeys(overlap.heldout for overlap in near)


def _answers(item: Item, written: list[str]) -> bool:
    """Return whether a script holds the right answer to an item, if the item names a sufficiently long answer."""
    named = {name: str(value) for name, value in item.constraint.items()}
    # Of a choice, the answer is its number.
    chosen = named.get(f"choice_{named.get('answer', '')}")
    texts = [chosen] if chosen else [value for name, value in named.items() if name.split("_")[0] == "answer"]
    flat = [_flat(text) for text in texts]
    return any(
        len(current_text) >= _SHORTEST and current_text in _flat(text) for current_text in flat for text in written
    )


def _text(path: Path) -> str:
    return read_regular(path).decode("utf-8", "replace")


def _flat(text: str) -> str:
    """Return a text in which only words count, those inside JSON strings too."""
    return " ".join(text.replace('\\"', '"').replace("\\n", " ").casefold().split())
