"""Rules on a reviewer that asks a model: what goes together, and whether its reviews can be paid for."""

from __future__ import annotations

from collections.abc import Iterator

from specs.places import LintProblem, Loc
from specs.session import Reviewer, SessionSpec

DESIGN_STAKES = "medium"
"""The design gate is no stage, so no spec states its stakes."""

_MODEL_ONLY = ("base_url", "usd_per_million_tokens", "effort")


def lint_reviewer(spec: SessionSpec) -> Iterator[LintProblem]:
    """Endpoint and price belong together, and one review of every gate fits in the held-back share."""
    reviewer = spec.reviewer
    vendor: Loc = ("reviewer", "vendor")
    if reviewer.vendor == "checklist":
        for key in _MODEL_ONLY:
            if key in reviewer.model_fields_set:
                yield LintProblem(("reviewer", key), "'checklist' asks no model", "remove the line", (vendor,))
        return
    if reviewer.base_url is not None:
        loc: Loc = ("reviewer", "base_url")
        if reviewer.vendor != "openai":
            message = f"vendor '{reviewer.vendor}' has one address; an address of your own is for vendor openai"
            yield LintProblem(loc, message, "remove the line, or take vendor openai", (vendor,))
        elif reviewer.usd_per_million_tokens is None:
            message = "the price of an endpoint of your own is not known"
            hint = "add usd_per_million_tokens: {input: ..., output: ...}, 0 if it costs nothing"
            yield LintProblem(loc, message, hint, (vendor,))
    if reviewer.vendor != spec.builder.vendor:
        # Otherwise somebody else has to review, and what they cost is not known yet.
        yield from _lint_share(spec)


def _lint_share(spec: SessionSpec) -> Iterator[LintProblem]:
    needed = cost_of_all(spec)
    share = spec.budget.held_back.review * spec.budget.max_cost_usd
    if needed > share + 1e-9:
        message = (
            f"one review of every gate may cost {needed:.2f} USD, "
            f"held_back.review keeps {share:.2f} USD ({spec.budget.held_back.review:g} of {spec.budget.max_cost_usd:g})"
        )
        uses: tuple[Loc, ...] = (("reviewer", "effort"), ("reviewer", "vendor"), ("budget", "max_cost_usd"))
        stakes: tuple[Loc, ...] = tuple(("stages", index, "gate") for index in range(len(spec.stages)))
        hint = "raise held_back.review or max_cost_usd, or lower reviewer.effort"
        yield LintProblem(("budget", "held_back", "review"), message, hint, (*uses, *stakes))


def cost_of_all(spec: SessionSpec) -> float:
    """Return the most that one review of every gate can cost; nothing when no model is asked or it is free."""
    if spec.reviewer.vendor == "checklist" or _is_free(spec.reviewer):
        return 0.0
    stakes = (DESIGN_STAKES, *(stage.gate.stakes for stage in spec.stages))
    return sum(getattr(spec.reviewer.effort, one).max_cost_usd for one in stakes)


def _is_free(reviewer: Reviewer) -> bool:
    price = reviewer.usd_per_million_tokens
    return price is not None and price.input == price.output == 0
