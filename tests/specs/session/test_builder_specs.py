"""A builder in a spec: what goes together, who may judge it, and what is registered of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from specs.session.session_spec import ResolvedSpec
from specs.system.vendors.parties import BuilderSpec, ReviewerSpec, makers
from testing.factories.evidence_on_disk import design_results
from testing.factories.spec_files import loads, problems_of, write_spec

PLAYBOOK = "builder: {vendor: playbook}\nreviewer: {vendor: checklist}"
FREE = "usd_per_million_tokens: {input: 0, output: 0}"
OWN = f"base_url: 'http://127.0.0.1:8000/v1', {FREE}"


def list_problems(folder: Path, builder: str, reviewer: str = "{vendor: checklist}") -> list[str]:
    changes = ((PLAYBOOK, f"builder: {builder}\nreviewer: {reviewer}"), ("review: 0.05", "review: 0.4"))
    return [f"{problem.keys}: {problem.message}" for problem in problems_of(write_spec(folder, *changes))]


def independence(resolved: ResolvedSpec) -> str:
    return next(result.status for result in design_results(resolved, (), {}) if result.id == "design.independence")


@pytest.mark.parametrize(
    ("builder", "reviewer"),
    [
        ("{vendor: anthropic, model: claude-opus-5}", "{vendor: checklist}"),
        ("{vendor: anthropic, model: claude-opus-5}", "{vendor: openai, model: gpt-5.4}"),
        ("{vendor: openai, model: gpt-5-mini, reasoning: low, max_output_tokens: 4000}", "{vendor: checklist}"),
        (f"{{vendor: openai, model: qwen, {OWN}}}", "{vendor: anthropic, model: claude-opus-5}"),
        ("{vendor: anthropic, model: claude-opus-5}", f"{{vendor: openai, model: qwen, {OWN}}}"),
    ],
)
def test_what_goes_together_loads(tmp_path: Path, builder: str, reviewer: str) -> None:
    changes = ((PLAYBOOK, f"builder: {builder}\nreviewer: {reviewer}"), ("review: 0.05", "review: 0.4"))
    resolved = loads(write_spec(tmp_path, *changes))
    assert resolved.spec.builder.asks_a_model
    assert independence(resolved) == "PASS"


@pytest.mark.parametrize(
    ("builder", "message"),
    [
        ("{vendor: playbook, timeout_s: 5}", "builder.timeout_s: 'playbook' asks no model"),
        (f"{{vendor: playbook, {FREE}}}", "builder.usd_per_million_tokens: 'playbook' asks no model"),
        ("{vendor: anthropic}", "builder.model: vendor 'anthropic' needs a model"),
        ("{vendor: anthropic, model: nobody-knows-it}", "builder.model: no price is known for model 'nobody-knows-it'"),
        ("{vendor: openai, model: m, base_url: 'http://127.0.0.1/v1'}", "builder.base_url: the price of an endpoint"),
        (
            "{vendor: anthropic, model: m, base_url: 'http://127.0.0.1/v1'}",
            "builder.base_url: the price of an endpoint",
        ),
        ("{vendor: anthropic, model: claude-opus-5, reasoning: minimal}", "builder.reasoning: Anthropic has no effort"),
        ("{vendor: openai, model: gpt-5.4, reasoning: deep}", "builder.reasoning: reasoning must be 'none', 'minimal'"),
        ("{vendor: anthropic, model: claude-opus-5, max_output_tokens: 10}", "builder.max_output_tokens"),
        ("{vendor: openai, model: m, base_url: 'http://key@host/v1'}", "builder.base_url"),
    ],
)
def test_what_does_not_is_one_problem_at_its_key(tmp_path: Path, builder: str, message: str) -> None:
    (text,) = list_problems(tmp_path, builder)
    assert text.startswith(message), text


AT_ANTHROPIC = f"base_url: 'https://api.anthropic.com/v1', {FREE}"
AT_OPENAI = f"base_url: 'https://eu.api.openai.com/v1', {FREE}"
OWN_WORK = [
    ("{vendor: anthropic, model: claude-opus-5}", "{vendor: anthropic, model: claude-opus-5}"),
    (f"{{vendor: openai, model: qwen, {OWN}}}", "{vendor: openai, model: gpt-5.4}"),
    (f"{{vendor: openai, model: a, {OWN}}}", f"{{vendor: openai, model: b, {OWN}}}"),
    (f"{{vendor: openai, model: some, {AT_ANTHROPIC}}}", "{vendor: anthropic, model: claude-opus-5}"),
    ("{vendor: anthropic, model: claude-opus-5}", f"{{vendor: openai, model: some, {AT_ANTHROPIC}}}"),
    ("{vendor: anthropic, model: claude-opus-5}", f"{{vendor: openai, model: anthropic/claude-sonnet-5, {OWN}}}"),
    (f"{{vendor: openai, model: claude-opus-5, {OWN}}}", "{vendor: anthropic, model: claude-opus-5}"),
]


@pytest.mark.parametrize(("builder", "reviewer"), OWN_WORK)
def test_no_one_judges_a_model_of_its_own_maker(tmp_path: Path, builder: str, reviewer: str) -> None:
    (message,) = list_problems(tmp_path, builder, reviewer)
    assert message.startswith("reviewer.vendor: ") and "judge its own work" in message


@pytest.mark.parametrize(("builder", "reviewer"), OWN_WORK)
def test_nor_does_the_design_gate_believe_a_spec_that_was_never_checked(
    tmp_path: Path, builder: str, reviewer: str
) -> None:
    resolved = loads(write_spec(tmp_path))
    yaml = YAML(typ="safe")
    parties = {"builder": BuilderSpec(**yaml.load(builder)), "reviewer": ReviewerSpec(**yaml.load(reviewer))}
    unchecked = resolved.model_copy(update={"spec": resolved.spec.model_copy(update=parties)})
    assert independence(unchecked) == "FAIL"


@pytest.mark.parametrize(
    ("party", "results"),
    [
        ({"vendor": "openai", "model": "gpt-5", "base_url": None}, {"openai"}),
        ({"vendor": "openai", "model": "x", "base_url": "https://API.Anthropic.com./v1"}, {"openai", "anthropic"}),
        ({"vendor": "openai", "model": "x", "base_url": "https://anthropic.com.evil.example/v1"}, {"openai"}),
        ({"vendor": "openai", "model": "claudette", "base_url": "http://h/v1"}, {"openai"}),
        ({"vendor": "anthropic", "model": "openai/gpt-5.4", "base_url": None}, {"openai", "anthropic"}),
        ({"vendor": "anthropic", "model": "us.anthropic.claude-opus-5-v1:0", "base_url": None}, {"anthropic"}),
    ],
)
def test_makers_are_read_from_vendor_address_and_name(party: dict[str, Any], results: set[str]) -> None:
    assert makers(BuilderSpec.model_validate(party)) == makers(ReviewerSpec.model_validate(party)) == results


def test_a_builder_with_a_model_registers_every_limit() -> None:
    registered = BuilderSpec(vendor="anthropic", model="claude-opus-5").model_dump(mode="json")
    assert registered == {
        "vendor": "anthropic",
        "model": "claude-opus-5",
        "max_output_tokens": 8000,
        "timeout_s": 600.0,
        "outage_s": 1800.0,
        **dict.fromkeys(("base_url", "model_vendor", "usd_per_million_tokens", "reasoning")),
        "images": False,
    }
