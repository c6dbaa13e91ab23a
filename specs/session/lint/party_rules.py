"""Rules on builder and reviewer: what goes together, that nobody judges their own work, and that reviews are paid."""

from __future__ import annotations

from collections.abc import Iterator

from specs import plugins
from specs.session.model_vendor import makers
from specs.session.problems import LintProblem, Loc, suggest
from specs.session.reviewer_vendor import GROUP, vendor_of
from specs.session.session_spec import REVIEWERS, Builder, Effort, Efforts, Reviewer, SessionSpec
from specs.vendors.prices import is_listed, unlisted

DESIGN_STAKES = "medium"
"""The design gate is no stage, so no spec states its stakes."""

LATENCY_S = {"low": 120, "medium": 300, "high": 600}
"""How long a review takes at worst at each reasoning. Less time ends calls that were going well, and paid for."""

_RESERVED = ("playbook", "external", "panel")
"""Names of builders and of the panel's verdict, which nobody who judges can have."""
_BUILDER_MODEL_ONLY = ("base_url", "usd_per_million_tokens", "max_output_tokens", "timeout_s", "outage_s", "reasoning")
_REVIEWER_MODEL_ONLY = ("base_url", "api", "usd_per_million_tokens", "effort")


def reviewers_of(spec: SessionSpec) -> Iterator[tuple[Loc, Reviewer]]:
    """Yield everybody who may be asked, with the place in the spec."""
    if spec.panel is None:
        yield ("reviewer",), spec.reviewer
        return
    for index, member in enumerate(spec.panel.members):
        yield ("panel", "members", index), member
    if spec.panel.tie_breaker is not None:
        yield ("panel", "tie_breaker"), spec.panel.tie_breaker


def lint_parties(spec: SessionSpec) -> Iterator[LintProblem]:
    """Builder and reviewer come from different vendors, and name a model exactly when they need one."""
    for place, reviewer in reviewers_of(spec):
        if spec.builder.vendor == reviewer.vendor and is_known(reviewer.vendor):
            message = f"the reviewer is from the builder's vendor '{spec.builder.vendor}': it would judge its own work"
            yield LintProblem((*place, "vendor"), message, "take another vendor, or 'checklist'")
    builder = spec.builder
    parties: list[tuple[Loc, str, str | None, bool]] = [
        (("builder",), builder.vendor, builder.model, not builder.asks_a_model)
    ]
    parties += [
        (place, one.vendor, one.model, works_without_model(one))
        for place, one in reviewers_of(spec)
        if is_known(one.vendor)
    ]
    for place, vendor, model, without in parties:
        loc: Loc = (*place, "model")
        if without and model is not None:
            yield LintProblem(loc, f"'{vendor}' works without a model", "remove the line")
        elif not without and not model:
            yield LintProblem(loc, f"vendor '{vendor}' needs a model", "name it under model")


def lint_builder(spec: SessionSpec) -> Iterator[LintProblem]:
    """Endpoint and price belong together, and no reviewer is the builder's model at another address."""
    builder = spec.builder
    yield from _lint_model_vendor(spec)
    if not builder.asks_a_model:
        for key in _BUILDER_MODEL_ONLY:
            if key in builder.model_fields_set:
                yield LintProblem(("builder", key), f"'{builder.vendor}' asks no model", "remove the line")
        return
    yield from lint_endpoint(("builder",), builder)
    yield from _lint_makers(spec)


def _lint_model_vendor(spec: SessionSpec) -> Iterator[LintProblem]:
    """An external builder says whose model it is before another model may judge it: nothing else shows it."""
    builder = spec.builder
    stated: Loc = ("builder", "model_vendor")
    if builder.vendor != "external":
        if builder.model_vendor is not None:
            message = f"vendor '{builder.vendor}' says whose model it is already; model_vendor is for 'external'"
            yield LintProblem(stated, message, "remove the line")
        return
    for place, reviewer in reviewers_of(spec):
        if not reviewer.asks_a_model:
            continue
        if builder.model_vendor is None:
            message = "the reviewer is a model and nobody says whose model the external builder is"
            hint = "add model_vendor: anthropic, openai or other to the builder; or take 'checklist' or 'person'"
            yield LintProblem((*place, "vendor"), message, hint)
        elif builder.model_vendor in makers(reviewer):
            message = f"the reviewer is of the builder's model vendor '{builder.model_vendor}'"
            hint = "it would judge its own work: take another vendor, or 'checklist'"
            yield LintProblem((*place, "vendor"), message, hint)


def _lint_makers(spec: SessionSpec) -> Iterator[LintProblem]:
    """Find vendors that an address or a name gives away; those that are written the same are found above."""
    for place, reviewer in reviewers_of(spec):
        same = sorted(makers(spec.builder) & makers(reviewer))
        if same and reviewer.vendor != spec.builder.vendor:
            message = (
                f"builder and reviewer are both {same[0]}'s, by vendor, address or model: it would judge its own work"
            )
            yield LintProblem((*place, "vendor"), message, "take another vendor, or 'checklist'")


def is_known(vendor: str) -> bool:
    """Say whether a vendor is Peergate's own, or brought by a distribution that is installed."""
    return vendor in REVIEWERS or (vendor not in _RESERVED and plugins.find(GROUP, vendor) is not None)


def works_without_model(reviewer: Reviewer) -> bool:
    """Say whether a known vendor asks no model.

    Raises:
        PluginFault: another distribution brings it, and it cannot be used.
    """
    return not vendor_of(reviewer.vendor).asks_model if reviewer.is_plugin else not reviewer.asks_a_model


def lint_reviewer(spec: SessionSpec) -> Iterator[LintProblem]:
    """Endpoint, API and price belong together, a review has time to end, and the held-back share pays for all."""
    yield from _lint_panel(spec)
    for place, reviewer in reviewers_of(spec):
        yield from _lint_one(place, reviewer)
    if all(reviewer.vendor != spec.builder.vendor for _, reviewer in reviewers_of(spec)):
        # Otherwise somebody else has to review, and what they cost is not known yet.
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
            yield LintProblem(place, f"is members[{same}] once more", "one voice counts once")
    if panel.tie_breaker is not None and panel.tie_breaker.vendor in vendors:
        loc: Loc = ("panel", "tie_breaker", "vendor")
        message = f"vendor '{panel.tie_breaker.vendor}' is a member already: it would break the tie for itself"
        yield LintProblem(loc, message, "take another vendor, or a person")


def _lint_one(place: Loc, reviewer: Reviewer) -> Iterator[LintProblem]:
    vendor: Loc = (*place, "vendor")
    if not is_known(reviewer.vendor):
        known = (*REVIEWERS, *(one.name for one in plugins.installed(GROUP)))
        message, hint = f"unknown reviewer vendor '{reviewer.vendor}'", suggest(reviewer.vendor, known, "known")
        if reviewer.vendor == "playbook":
            message, hint = "'playbook' acts, it cannot be the reviewer", "without a model, take 'checklist'"
        yield LintProblem(vendor, message, hint)
        return
    if not reviewer.asks_a_model:
        for key in _REVIEWER_MODEL_ONLY:
            if key in reviewer.model_fields_set:
                yield LintProblem((*place, key), f"'{reviewer.vendor}' asks no model", "remove the line")
        return
    if reviewer.is_plugin:
        yield from _lint_plugin(place, reviewer)
        return
    yield from lint_endpoint(place, reviewer)
    if reviewer.base_url is None and reviewer.api != "responses":
        message = f"'{reviewer.api}' is for an endpoint of your own; vendor '{reviewer.vendor}' has one API"
        hint = "remove the line, or name the endpoint under base_url"
        yield LintProblem((*place, "api"), message, hint)
    yield from _lint_times(place, reviewer)


def _lint_plugin(place: Loc, reviewer: Reviewer) -> Iterator[LintProblem]:
    """A plug-in asks its model in its own way; what that takes is not measured, so its cap is what it costs."""
    for key in ("base_url", "api"):
        if key in reviewer.model_fields_set:
            message = f"vendor '{reviewer.vendor}' asks its model in its own way"
            yield LintProblem((*place, key), message, "remove the line")
    if reviewer.usd_per_million_tokens is not None and not _is_free(reviewer):
        message = f"tokens of vendor '{reviewer.vendor}' are not counted: a review costs its max_cost_usd"
        yield LintProblem((*place, "usd_per_million_tokens"), message, "write 0 for both, or remove it")


def lint_endpoint(place: Loc, party: Builder | Reviewer) -> Iterator[LintProblem]:
    """Address and price of a party that asks a model belong together."""
    if party.base_url is not None:
        loc: Loc = (*place, "base_url")
        if party.vendor != "openai":
            message = f"vendor '{party.vendor}' has one address; an address of your own is for vendor openai"
            yield LintProblem(loc, message, "remove the line, or take vendor openai")
        elif party.usd_per_million_tokens is None:
            message = "the price of an endpoint of your own is not known"
            hint = "add usd_per_million_tokens: {input: ..., output: ...}, 0 if it costs nothing"
            yield LintProblem(loc, message, hint)
    elif party.usd_per_million_tokens is None and party.model:
        yield from _lint_price(place, party.vendor, party.model)


def _lint_price(place: Loc, vendor: str, model: str) -> Iterator[LintProblem]:
    """A price is known of the model before it is asked anything. Without the price list, the start refuses."""
    try:
        if not is_listed(vendor, model):
            yield LintProblem((*place, "model"), *unlisted(vendor, model))
    except ImportError:
        return


def _lint_times(at: Loc, reviewer: Reviewer) -> Iterator[LintProblem]:
    """A review that is asked to reason has the time that takes.

    An error and no advice: a call that was cut off is billed, is not repeated and closes the gate, so a shorter time
    buys nothing.
    """
    efforts = reviewer.with_reasoning().effort
    for tier in Efforts.model_fields:
        effort: Effort = getattr(efforts, tier)
        needed = LATENCY_S.get(effort.reasoning or "", 0)
        if effort.timeout_s < needed:
            place: Loc = (*at, "effort", tier)
            said = f"a review with {effort.reasoning} reasoning takes up to {needed} s"
            hint = "allow more time, or less reasoning"
            yield LintProblem((*place, "timeout_s"), f"timeout_s is {effort.timeout_s:g}; {said}", hint)


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
    """Return the most that one review of every gate can cost; nothing when no model is asked or it is free."""
    stakes = (DESIGN_STAKES, *(stage.gate.stakes for stage in spec.stages))
    return sum(
        getattr(reviewer.effort, one).max_cost_usd
        for reviewer in spec.reviewers()
        if reviewer.asks_a_model and not _is_free(reviewer)
        for one in stakes
    )


def _is_free(reviewer: Reviewer) -> bool:
    price = reviewer.usd_per_million_tokens
    return price is not None and price.input == price.output == 0
