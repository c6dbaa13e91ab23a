"""Who acts in a session and who judges: vendor, model, address, price and effort, as a spec states them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SerializerFunctionWrapHandler, StringConstraints, model_serializer

from specs.system.digests import Contract, Name


class TokenPrice(Contract):
    """What an endpoint charges, in USD per million tokens. A free endpoint must state 0."""

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]

    @property
    def is_free(self) -> bool:
        """Return whether tokens cost nothing."""
        return self.input == self.output == 0


Address = Annotated[str, StringConstraints(pattern=r"^https?://[^/@?#\s]+(/[^?#\s]*)?$")]


Depth = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How hard a model is asked to think, in the words of the vendors. Anthropic has no ``none`` and no ``minimal``."""


class BuilderSpec(Contract):
    """Who acts: ``playbook`` follows the spec, ``external`` is a client of ``peergate mcp``, others ask a model."""

    vendor: Literal["playbook", "external", "anthropic", "openai"] = "playbook"
    model: str | None = None
    model_vendor: Literal["anthropic", "openai", "other"] | None = None
    """The vendor of an external builder's model, as stated by its user, because a client does not reveal it."""
    base_url: Address | None = None
    """An endpoint that speaks chat completions with tools, or Anthropic's API with ``vendor: anthropic``; OpenAI's own
    models are asked through its Responses API."""
    usd_per_million_tokens: TokenPrice | None = None
    """The model's price; required with ``base_url`` and for models without a known price."""
    max_output_tokens: Annotated[int, Field(ge=256, le=128_000)] = 8_000
    """The longest answer of one turn, thinking included; with the conversation it bounds what a turn can cost."""
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 600.0
    """The longest one call may take."""
    outage_s: Annotated[float, Field(ge=0, le=86_400)] = 1800.0
    """How long calls are repeated while the API refuses them or is not reached; then the session pauses."""
    reasoning: Depth | None = None
    """The reasoning effort that is requested; by default none."""
    images: bool = False
    """Whether plots are sent to the model as images. Not possible over chat completions, whose tools answer in text."""

    @property
    def asks_a_model(self) -> bool:
        """Return whether the builder's turns go over the wire."""
        return self.vendor not in ("playbook", "external")

    @model_serializer(mode="wrap")
    def _only_what_is_used(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what a builder without a model has no use for: registrations made before stay the same."""
        values: dict[str, Any] = handler(self)
        if self.asks_a_model:
            return values
        return {key: values[key] for key in ("vendor", "model", "model_vendor") if key in values}


Api = Literal["responses", "chat", "chat_json_object"]
Reasoning = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "not_sent"]
"""``not_sent``: the model is asked nothing, for models that refuse the question."""


class ReviewLimits(Contract):
    """The most one review may take: seconds for each call, and money in all. The money bounds the answer's length."""

    timeout_s: Annotated[float, Field(gt=0, le=3600)]
    max_cost_usd: Annotated[float, Field(gt=0)]
    max_output_tokens: Annotated[int, Field(ge=256, le=1_000_000)] | None = None
    """Also bounds the answer's length, thinking included: servers refuse more than fits in a model's window."""
    reasoning: Reasoning | None = None
    """For your own endpoint the default is None, which means ``not_sent``."""


class Efforts(Contract):
    """One effort for each ``stakes`` of a gate; the design gate has medium stakes."""

    # Half as long again as reviews of each kind take at worst (specs/lint/party_rules.py, LATENCY_S).
    low: ReviewLimits = ReviewLimits(timeout_s=180, max_cost_usd=0.25)
    medium: ReviewLimits = ReviewLimits(timeout_s=450, max_cost_usd=0.5)
    high: ReviewLimits = ReviewLimits(timeout_s=900, max_cost_usd=1.0)


LOOKS = 4
"""Answers in which a reviewer may look into the evidence, where its spec does not say."""
REVIEWERS = ("checklist", "person", "anthropic", "openai")
"""Peergate's own vendors of reviewers."""


class ReviewerSpec(Contract):
    """Who judges: ``checklist`` by rules, ``person`` at the terminal or by a file, others through their vendor."""

    vendor: Name = "checklist"
    """One of :data:`REVIEWERS`, or one of ``peergate.reviewers``."""
    model: str | None = None
    base_url: Address | None = None
    """An endpoint that speaks one of OpenAI's APIs, or Anthropic's with ``vendor: anthropic``."""
    api: Api = "responses"
    """The API of the endpoint; those of chat differ in how they send a schema (docs/how-to/model-reviewers.md)."""
    usd_per_million_tokens: TokenPrice | None = None
    """The model's price; required with ``base_url`` and for models without a known price."""
    effort: Efforts = Efforts()
    outage_s: float = Field(default=1800.0, ge=0, le=86_400)
    """How long calls are repeated while the API refuses them or is not reached; then a person is asked."""
    looks: Annotated[int, Field(ge=0, le=20)] | None = None
    """In how many answers to one packet a model may look into its evidence with tools, within ``max_cost_usd``; for an
    endpoint of your own, or a plug-in, none where it is not stated, and never through an API of chat."""
    refutation: bool = False
    """Whether each blocking finding is put to a fresh call with nothing but its evidence; what does not survive is
    advice. Within ``max_cost_usd`` of the review."""
    canary_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The probability that a packet is also put to the reviewer with a planted flaw. A reviewer that approves one is
    suspended. Each costs as much as a review."""

    @property
    def asks_a_model(self) -> bool:
        """Return whether a model is asked. The spec names a model exactly then, even for an absent plug-in."""
        return self.model is not None if self.is_plugin else self.vendor not in ("checklist", "person")

    @property
    def is_plugin(self) -> bool:
        """Return whether another distribution brings the vendor."""
        return self.vendor not in REVIEWERS

    def with_reasoning(self) -> ReviewerSpec:
        """Return the reviewer as it is registered: with the tier's own reasoning and the looks that a vendor is given.

        An endpoint of the user gets only what the spec states: many servers refuse fields they do not know.
        """
        if not self.asks_a_model or self.is_plugin or self.base_url is not None:
            return self
        stated: dict[str, ReviewLimits] = {name: getattr(self.effort, name) for name in Efforts.model_fields}
        filled = {
            name: effort if effort.reasoning else effort.model_copy(update={"reasoning": name})
            for name, effort in stated.items()
        }
        looks = LOOKS if self.looks is None else self.looks
        return self.model_copy(update={"effort": Efforts(**filled), "looks": looks})

    @model_serializer(mode="wrap")
    def _only_what_is_used(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what a reviewer without a model has no use for: registrations made before stay the same."""
        values: dict[str, Any] = handler(self)
        if not self.asks_a_model:
            return {"vendor": values["vendor"], "model": values["model"]}
        return values


class PanelSpec(Contract):
    """Several reviewers for every gate, instead of one."""

    members: Annotated[tuple[ReviewerSpec, ...], Field(min_length=2, max_length=9)]
    quorum: Annotated[int, Field(ge=1)]
    """How many must approve, and how many must give a verdict."""
    tie_breaker: ReviewerSpec | None = None
    """Also asked if the members disagree; must be of another vendor."""


_HOSTS = {
    "anthropic": ("anthropic.com", "claude.com"),
    "openai": ("openai.com", "openai.azure.com", "chatgpt.com"),
}
_MODELS = {
    "anthropic": re.compile(r"\bclaude\b|\banthropic\b", re.IGNORECASE),
    "openai": re.compile(r"\b(gpt-\d|chatgpt|o[1-9](-|$)|openai\b)", re.IGNORECASE),
}


def makers(party: BuilderSpec | ReviewerSpec) -> frozenset[str]:
    """Return every vendor whose model a builder or reviewer is, by its vendor, address or the name of its model.

    A model under another name at an unknown address is not recognised.
    """
    texts: set[str] = {party.vendor}
    host = (urlsplit(party.base_url).hostname or "").rstrip(".") if party.base_url else ""
    texts |= {
        name for name, hosts in _HOSTS.items() if any(host == text or host.endswith(f".{text}") for text in hosts)
    }
    if isinstance(party, BuilderSpec) and party.model_vendor is not None:
        texts.add(party.model_vendor)
    if party.model:
        texts |= {name for name, pattern in _MODELS.items() if pattern.search(party.model)}
    return frozenset(texts)
