"""Did the builder's code run where it may, leave what can be kept, and nothing of the held-out items?

What a recipe computes is never measured: its rows are claims, and no metric is taken from them. These checks ask about
the walls around it.
"""

from __future__ import annotations

from pathlib import Path

from reviews.checks.check import Check, Found, listed
from reviews.checks.jobs import manifest_of
from reviews.evidence import Evidence
from reviews.rows import read_objects
from specs.digests import list_tree
from specs.errors import EvidenceMissing
from specs.metrics import MetricSet

SANDBOX = "recipe.sandbox"
"""A person who lifts this check for a stage allows its code to run without a sandbox."""
_RECIPE = ("recipe",)
_SHORTEST = 12
"""Shorter prompts are words that stand in any text."""


def _sandbox(evidence: Evidence, _: MetricSet | None) -> Found:
    """Ask the manifest, which Peergate's own process beside the sandbox wrote."""
    told = manifest_of(evidence).facts.get("sandbox")
    if not isinstance(told, str) or not told:
        raise EvidenceMissing("the manifest does not say what the script ran in")
    if told == "none":
        return Found("FAIL", "the script ran without a sandbox", repairable=False)
    return Found("PASS", f"the script ran in {told}")


def _left_out(evidence: Evidence, _: MetricSet | None) -> Found:
    facts = manifest_of(evidence).facts
    links, log = facts.get("left_out"), facts.get("log_bytes_left_out")
    if not isinstance(links, int) or not isinstance(log, int):
        raise EvidenceMissing("the manifest does not say what was left out")
    if links or log:
        return Found("WARN", f"not kept: {links} links, pipes or devices, and {log} bytes of the log", float(links))
    return Found("PASS", f"all of {facts.get('files')} files and the whole log were kept", 0.0)


def _rows(evidence: Evidence, _: MetricSet | None) -> Found:
    rows = read_objects(evidence.outputs.get("rows"), "recipe rows")
    return Found("PASS", f"{len(rows)} rows, which are claims: nothing is measured from them", float(len(rows)))


def _heldout(evidence: Evidence, _: MetricSet | None) -> Found:
    """Look for held-out prompts in everything the recipe left, in any case and spacing.

    This finds what slipped through, not what somebody hid: whoever encodes a prompt is stopped by the sandbox or not.
    """
    folder, rows = evidence.outputs.get("files"), evidence.outputs.get("rows")
    if folder is None or rows is None or not folder.is_dir() or not rows.is_file():
        raise EvidenceMissing("the recipe's files are missing")
    prompts = {item.id: _flat(item.prompt) for item in evidence.heldout}
    texts = [("log", evidence.log_tail), *((path.name, _text(path)) for path in (rows, *list_tree(folder)))]
    shown: list[dict[str, str]] = []
    for name, text in texts:
        flat = _flat(text)
        shown += [
            {"file": name, "item": id} for id, prompt in prompts.items() if len(prompt) >= _SHORTEST and prompt in flat
        ]
    if shown:
        told = listed(f"{one['item']} in {one['file']}" for one in shown)
        detail = f"held-out prompts stand in what the script left: {told}"
        return Found("FAIL", detail, float(len(shown)), tuple(shown), repairable=False)
    return Found("PASS", f"none of {len(prompts)} held-out prompts stands in {len(texts)} texts", 0.0)


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def _flat(text: str) -> str:
    """Return a text in which only words count, those inside JSON strings too."""
    return " ".join(text.replace('\\"', '"').replace("\\n", " ").casefold().split())


CHECKS = (
    Check(SANDBOX, "The builder's code ran in a sandbox", _RECIPE, _sandbox, "agents that read the answers"),
    Check("recipe.rows", "The rows are whole", _RECIPE, _rows, "claims in no form"),
    Check("recipe.heldout", "Nothing held-out is in the output", _RECIPE, _heldout, "held-out items read by agents"),
    Check("recipe.kept", "All that was left was kept", _RECIPE, _left_out, "links out of a sandbox", blocking=False),
)
