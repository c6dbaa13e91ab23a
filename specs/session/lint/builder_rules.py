"""Rules on a builder that asks a model: what goes together, what it costs, and that it is not its own judge."""

from __future__ import annotations

from collections.abc import Iterator

from specs.session.lint.reviewer_rules import lint_endpoint, reviewers_of
from specs.session.model_vendor import makers
from specs.session.problems import LintProblem, Loc
from specs.session.session_spec import SessionSpec

_MODEL_ONLY = ("base_url", "usd_per_million_tokens", "max_output_tokens", "timeout_s", "outage_s", "reasoning")


def lint_builder(spec: SessionSpec) -> Iterator[LintProblem]:
    """Endpoint and price belong together, and no reviewer is the builder's model at another address."""
    builder = spec.builder
    yield from _lint_model_vendor(spec)
    if not builder.asks_a_model:
        for key in _MODEL_ONLY:
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
    """Find vendors that an address or a name gives away; ``rules.py`` finds those that are written the same."""
    for place, reviewer in reviewers_of(spec):
        same = sorted(makers(spec.builder) & makers(reviewer))
        if same and reviewer.vendor != spec.builder.vendor:
            message = (
                f"builder and reviewer are both {same[0]}'s, by vendor, address or model: it would judge its own work"
            )
            yield LintProblem((*place, "vendor"), message, "take another vendor, or 'checklist'")
