"""Rules on builder and reviewer: what goes together, that no one judges their own work, and that reviews are paid."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from specs.session.reviewer_vendor import GROUP, vendor_of
from specs.session.session_spec import SessionSpec
from specs.system import plugins
from specs.system.vendors.parties import REVIEWERS, BuilderSpec, Efforts, ReviewerSpec, ReviewLimits, makers
from specs.system.vendors.prices import describe_unlisted_model, is_listed
from specs.system.yaml.problems import LintProblem, Loc, suggest

DESIGN_STAKES = "medium"
"""The design gate is not a stage, so no spec states its stakes."""

LATENCY_S = {"low": 120, "medium": 300, "high": 600, "xhigh": 1200, "max": 1800}
"""How long a review takes at worst at each reasoning. Less time ends calls that were going well, and paid for."""

_RESERVED = ("playbook", "external", "panel")
"""Names of builders and of the panel's verdict, which no one who judges can have."""
_BUILDER_MODEL_ONLY = (
    "base_url",
    "usd_per_million_tokens",
    "max_output_tokens",
    "timeout_s",
    "outage_s",
    "reasoning",
    "images",
)
_REVIEWER_MODEL_ONLY = (
    "base_url",
    "api",
    "usd_per_million_tokens",
    "effort",
    "outage_s",
    "looks",
    "refutation",
    "canary_rate",
)


def reviewers_of(spec: SessionSpec) -> Iterator[tuple[Loc, ReviewerSpec]]:
    """Yield everybody who may be asked, with the place in the spec."""
    if spec.panel is None:
        yield ("reviewer",), spec.reviewer
        return
    for index, member in enumerate(spec.panel.members):
        yield ("panel", "members", index), member
    if spec.panel.tie_breaker is not None:
        yield ("panel", "tie_breaker"), spec.panel.tie_breaker


def lint_parties(spec: SessionSpec) -> Iterator[LintProblem]:
    """Builder and reviewer are not of one vendor; an external builder says whose model it is if models judge it."""
    builder = spec.builder
    if builder.vendor != "external" and builder.model_vendor is not None:
        message = f"vendor '{builder.vendor}' says whose model it is already; model_vendor is for 'external'"
        yield LintProblem(("builder", "model_vendor"), message, "remove the line")
    if builder.images and builder.vendor == "openai" and builder.base_url:
        message = "over chat completions no tool answers with an image"
        yield LintProblem(("builder", "images"), message, "remove the line: plots come as figures")
    for place, reviewer in reviewers_of(spec):
        if why := _own_judge(builder, reviewer):
            message = f"{why}: it would judge its own work"
            yield LintProblem((*place, "vendor"), message, "use another vendor, or 'checklist'")
        elif builder.vendor == "external" and reviewer.asks_a_model and builder.model_vendor is None:
            message = "the reviewer is a model, and the spec does not state whose model the external builder is"
            hint = "add model_vendor: anthropic, openai or other to the builder; or take 'checklist' or 'person'"
            yield LintProblem((*place, "vendor"), message, hint)


def _own_judge(builder: BuilderSpec, reviewer: ReviewerSpec) -> str:
    """Return why a reviewer would judge a model of the same vendor; empty if it would not."""
    same = sorted(makers(builder) & makers(reviewer))
    if builder.vendor == reviewer.vendor:
        return f"the reviewer is from the builder's vendor '{builder.vendor}'" if is_known(reviewer.vendor) else ""
    if builder.vendor == "external" and reviewer.asks_a_model and same:
        return f"the reviewer is of the builder's model vendor '{builder.model_vendor}'"
    if builder.asks_a_model and same:
        return f"builder and reviewer are {same[0]}'s, by vendor, address or model"
    return ""


def _model(place: Loc, party: BuilderSpec | ReviewerSpec, without: bool) -> Iterator[LintProblem]:
    if without and party.model is not None:
        yield LintProblem((*place, "model"), f"'{party.vendor}' works without a model", "remove the line")
    elif not without and not party.model:
        yield LintProblem((*place, "model"), f"vendor '{party.vendor}' needs a model", "name it under model")


def lint_builder(spec: SessionSpec) -> Iterator[LintProblem]:
    """A builder's model, endpoint and price belong together."""
    builder = spec.builder
    yield from _model(("builder",), builder, not builder.asks_a_model)
    if builder.asks_a_model:
        yield from lint_endpoint(("builder",), builder)
    else:
        yield from _superfluous(("builder",), builder, _BUILDER_MODEL_ONLY, "asks no model")


def _superfluous(
    place: Loc, party: BuilderSpec | ReviewerSpec, keys: tuple[str, ...], why: str, vendor: str = ""
) -> Iterator[LintProblem]:
    """Yield each of these keys that a party gives."""
    for key in keys:
        if key in party.model_fields_set:
            yield LintProblem((*place, key), f"{vendor}'{party.vendor}' {why}", "remove the line")


def is_known(vendor: str) -> bool:
    """Return whether a vendor is Peergate's own, or brought by a distribution that is installed."""
    return vendor in REVIEWERS or (vendor not in _RESERVED and plugins.find(GROUP, vendor) is not None)


def works_without_model(reviewer: ReviewerSpec) -> bool:
    """Return whether a known vendor asks no model; raises PluginFault for a plug-in that cannot be used."""
    return not vendor_of(reviewer.vendor).asks_model if reviewer.is_plugin else not reviewer.asks_a_model


def lint_reviewer(spec: SessionSpec) -> Iterator[LintProblem]:
    """Endpoint, API and price belong together, a review has time to end, and the held-back share pays for all."""
    yield from _lint_panel(spec)
    for place, reviewer in reviewers_of(spec):
        yield from lint_single_reviewer(place, reviewer)
    if all(reviewer.vendor != spec.builder.vendor for _, reviewer in reviewers_of(spec)):
        # Otherwise someone else has to review, and what they cost is not known yet.
        yield from _lint_share(spec)


def _lint_panel(spec: SessionSpec) -> Iterator[LintProblem]:
    """A panel replaces the reviewer, its quorum can be reached, and its members can disagree."""
    panel = spec.panel
    if panel is None:
        return
    if "reviewer" in spec.model_fields_set:
        message = "both a reviewer and a panel are given; one of them reviews"
        yield LintProblem(("panel",), message, "remove the other")
    if panel.quorum > len(panel.members):
        message = f"quorum is {panel.quorum}, the panel has {len(panel.members)} members"
        yield LintProblem(("panel", "quorum"), message, "lower it or add members")
    vendors = {member.vendor for member in panel.members}
    first: dict[tuple[str, str | None, str | None], int] = {}
    for index, member in enumerate(panel.members):
        same = first.setdefault((member.vendor, member.model, member.base_url), index)
        if same != index and member.vendor != "person":
            place: Loc = ("panel", "members", index)
            yield LintProblem(place, f"is members[{same}] once more", "each member counts once")
    if panel.tie_breaker is not None and panel.tie_breaker.vendor in vendors:
        loc: Loc = ("panel", "tie_breaker", "vendor")
        message = f"vendor '{panel.tie_breaker.vendor}' is a member already: it would break the tie for itself"
        yield LintProblem(loc, message, "use another vendor, or a person")


def lint_single_reviewer(place: Loc, reviewer: ReviewerSpec) -> Iterator[LintProblem]:
    """Vendor, model, endpoint, API and times of one reviewer fit each other."""
    if not is_known(reviewer.vendor):
        known = (*REVIEWERS, *(entry_point.name for entry_point in plugins.find_entry_points(GROUP)))
        message, hint = f"unknown reviewer vendor '{reviewer.vendor}'", suggest(reviewer.vendor, known, "known")
        if reviewer.vendor == "playbook":
            message, hint = "'playbook' acts, it cannot be the reviewer", "without a model, take 'checklist'"
        yield LintProblem((*place, "vendor"), message, hint)
        return
    yield from _model(place, reviewer, works_without_model(reviewer))
    if not reviewer.asks_a_model:
        yield from _superfluous(place, reviewer, _REVIEWER_MODEL_ONLY, "asks no model")
        return
    if reviewer.is_plugin:
        yield from _lint_plugin(place, reviewer)
        return
    yield from lint_endpoint(place, reviewer)
    if (reviewer.base_url is None or reviewer.vendor == "anthropic") and reviewer.api != "responses":
        message = f"'{reviewer.api}' is for an endpoint of your own; vendor '{reviewer.vendor}' has one API"
        hint = "remove the line, or name the endpoint under base_url"
        yield LintProblem((*place, "api"), message, hint)
    if reviewer.looks and reviewer.api != "responses":
        message = "a reviewer looks into evidence through the Responses API, or Anthropic's"
        yield LintProblem((*place, "looks"), message, "remove the line, or take api: responses")
    yield from _lint_times(place, reviewer)


def _lint_plugin(place: Loc, reviewer: ReviewerSpec) -> Iterator[LintProblem]:
    """A plug-in asks its model in its own way; what that takes is not measured, so its cap is what it costs."""
    yield from _superfluous(
        place, reviewer, ("base_url", "api", "refutation"), "asks its model in its own way", "vendor "
    )
    if reviewer.usd_per_million_tokens is not None and not reviewer.usd_per_million_tokens.is_free:
        message = f"tokens of vendor '{reviewer.vendor}' are not counted: a review costs its max_cost_usd"
        yield LintProblem((*place, "usd_per_million_tokens"), message, "write 0 for both, or remove it")


def lint_endpoint(place: Loc, party: BuilderSpec | ReviewerSpec) -> Iterator[LintProblem]:
    """Address and price of a party that asks a model belong together."""
    if party.base_url is not None and party.usd_per_million_tokens is None:
        message = "the price of an endpoint of your own is not known"
        hint = "add usd_per_million_tokens: {input: ..., output: ...}, 0 if it costs nothing"
        yield LintProblem((*place, "base_url"), message, hint)
    elif party.usd_per_million_tokens is None and party.model:
        yield from _lint_price(place, party.vendor, party.model)
    yield from _lint_depth(place, party)


_NOT_ANTHROPICS = ("none", "minimal")


def _lint_depth(place: Loc, party: BuilderSpec | ReviewerSpec) -> Iterator[LintProblem]:
    """A vendor is asked for an effort that it has."""
    if party.vendor != "anthropic":
        return
    requests = {("reasoning",): party.reasoning} if isinstance(party, BuilderSpec) else {}
    if isinstance(party, ReviewerSpec):
        requests = {
            ("effort", name, "reasoning"): getattr(party.effort, name).reasoning for name in Efforts.model_fields
        }
    for loc, depth in requests.items():
        if depth in _NOT_ANTHROPICS:
            yield LintProblem((*place, *loc), f"Anthropic has no effort '{depth}'", "low is its lowest")


def _lint_price(place: Loc, vendor: str, model: str) -> Iterator[LintProblem]:
    """A price is known of the model before it is asked anything. Without the price list, the start refuses."""
    with suppress(ImportError):
        if not is_listed(vendor, model):
            yield LintProblem((*place, "model"), *describe_unlisted_model(vendor, model))


def _lint_times(at: Loc, reviewer: ReviewerSpec) -> Iterator[LintProblem]:
    """A review that is asked to reason has the time for it: a call that is cut off is billed and closes the gate."""
    efforts = reviewer.with_reasoning().effort
    for tier in Efforts.model_fields:
        effort: ReviewLimits = getattr(efforts, tier)
        needed = LATENCY_S.get(effort.reasoning or "", 0)
        if effort.timeout_s < needed:
            place: Loc = (*at, "effort", tier)
            text = f"a review with {effort.reasoning} reasoning takes up to {needed} s"
            hint = "allow more time, or less reasoning"
            yield LintProblem((*place, "timeout_s"), f"timeout_s is {effort.timeout_s:g}; {text}", hint)


def _lint_share(spec: SessionSpec) -> Iterator[LintProblem]:
    needed = cost_of_all(spec)
    share = spec.budget.held_back.review * spec.budget.max_cost_usd
    if needed > share + 1e-9:
        message = (
            f"one review of every gate may cost {needed:.2f} USD, "
            f"held_back.review keeps {share:.2f} USD ({spec.budget.held_back.review:g} of {spec.budget.max_cost_usd:g})"
        )
        hint = "raise held_back.review or max_cost_usd, or lower reviewer.effort"
        yield LintProblem(("budget", "held_back", "review"), message, hint)


def cost_of_all(spec: SessionSpec) -> float:
    """Return what one review of every gate can cost, canaries included; 0 if no model is asked or tokens are free."""
    stakes = (DESIGN_STAKES, *(stage.gate.stakes for stage in spec.stages))
    return sum(
        getattr(reviewer.effort, stake).max_cost_usd * (1 + reviewer.canary_rate)
        for reviewer in spec.reviewers()
        if reviewer.asks_a_model and not (reviewer.usd_per_million_tokens and reviewer.usd_per_million_tokens.is_free)
        for stake in stakes
    )
