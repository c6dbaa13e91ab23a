"""Flaws of the design: its size, its arms, and how both are asked."""

from __future__ import annotations

from bench.flaws.operator import Operator, Row

_AFTER = "inputs: {model: train.checkpoint, items: heldout}\n    parameters: {max_new_tokens: 48, batch_size: 16"
_SHIP = "  - name: ship\n"
SECOND = """  - name: OTHER
    kind: sft
    inputs: {model: model, examples: sample.accepted}
    parameters: {learning_rate: 1e-3, warmup_ratio: 0, epochs: 2, batch_size: 4, max_length: 128, seed: 3}
"""
_LOOK = """  - name: look
    kind: evaluate
    inputs: {model: other.checkpoint, items: heldout}
    parameters: {max_new_tokens: 48, batch_size: 16, seed: 3}
"""


def _scarce(heldout: list[Row], _: list[Row]) -> None:
    rows = [row for row in heldout if row["kind"] != "quoted"]
    heldout[:] = [*rows, *[row for row in heldout if row["kind"] == "quoted"][:3]]


def _one_group(heldout: list[Row], _: list[Row]) -> None:
    for row in heldout:
        row["group"] = "all"


def _repeats(_: list[Row], prompts: list[Row]) -> None:
    for row in prompts:
        same = prompts[0] if row["kind"] == prompts[0]["kind"] else prompts[1]
        row["prompt"] = same["prompt"]


def _one_kind(_: list[Row], prompts: list[Row]) -> None:
    prompts[:] = [row for row in prompts if row["kind"] == "lowercase"]


def _change_treatment(change: str) -> tuple[tuple[str, str], ...]:
    """Return the change of the treatment's parameters alone."""
    return ((_AFTER, f"{_AFTER}, {change}"),)


OPERATORS = (
    Operator("tiny-n", "design", "far too few items", ("design.power",),
             spec=(("minimum_effect: 0.3", "minimum_effect: 0.05"),)),
    Operator("no-budget", "design", "no money for the plan", ("design.cost",),
             spec=(("max_cost_usd: 1.0", "max_cost_usd: 0.00001"),)),
    Operator("scarce-kind", "design", "three items of one kind are to speak for it", ("design.strata",),
             spec=(("n: 40", "n: 23"),), data=_scarce),
    Operator("one-group", "design", "all held-out items are of one group, as if each were its own",
             ("strata.groups", "design.groups"), data=_one_group),
    Operator("repeated-prompts", "design", "all training prompts of a kind are the same", ("design.duplicates",),
             data=_repeats),
    Operator("same-arm", "comparison", "the treatment is the base again", ("parity.models", "design.paired"),
             spec=((
                 "name: after\n    kind: evaluate\n    inputs: {model: train.checkpoint",
                 "name: after\n    kind: evaluate\n    inputs: {model: model",
             ),)),
    Operator("two-looks", "comparison", "another checkpoint is evaluated on the held-out split first",
             ("registration.evaluations",),
             spec=(("  - name: after\n", SECOND.replace("OTHER", "other") + _LOOK + "  - name: after\n"),)),
    Operator("heldout-decides", "comparison", "accuracy on the held-out split decides whether training goes on",
             ("decides before",),
             spec=(
                 ("  - name: train\n", SECOND.replace("OTHER", "other")
                  + _LOOK + "    gate: {criteria: [{metric: accuracy, at_least: 0.5}]}\n  - name: train\n"),
             )),
    Operator("one-kind-taught", "comparison", "prompts of one kind are trained on, the effect is claimed for all",
             ("strata.sensitivity",), data=_one_kind),
    Operator("unrelated-arm", "comparison", "the treatment was trained on other weights than the baseline's",
             ("parity.models", "registration.model", "design.baseline"),
             spec=(
                 ("instruct}\nbudget", "instruct}\ncontrol: {source: \"path:OTHER\", kind: instruct}\nbudget"),
                 ("inputs: {model: model, examples", "inputs: {model: control, examples"),
             )),
    Operator("short-base", "parity", "the base may say four tokens", ("parity.settings", "design.paired"),
             spec=((
                 "{model: model, items: heldout}\n    parameters: {max_new_tokens: 48",
                 "{model: model, items: heldout}\n    parameters: {max_new_tokens: 4",
             ),)),
    Operator("stops-treatment", "parity", "a stop string ends the treatment's answers only",
             ("parity.settings", "design.paired"), spec=_change_treatment('stops: ["."]')),
    Operator("wrapped-treatment", "parity", "the treatment's prompts say which answer scores",
             ("parity.settings", "design.paired"),
             spec=_change_treatment('prompting: wrapped, wrapper: "Mind the form that is asked for. {prompt}"')),
    Operator("other-scorer", "parity", "another verifier judges the treatment",
             ("parity.settings", "design.paired"), spec=_change_treatment("scorer: instruction_following")),
    Operator("other-engine", "parity", "the treatment is decoded by another engine",
             ("parity.settings", "design.paired"), spec=_change_treatment("engine: continuous")),
)  # fmt: skip
