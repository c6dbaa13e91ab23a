"""The ask-policy: which questions go to a reviewer, which do not, and with how much effort.

A pure function over a table. When in doubt it asks: a question labelled trivial that mentions the held-out split is
asked. Higher stakes or lower confidence never stop a question from being asked.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from reviews.requests.registered_values import NamedSpecValues, ProposedValue, SpecValueIndex
from specs.system.digests import digest_value
from specs.trail.requested_review import DecisionKind, PolicyAnswer, QuestionRequest, SpecValue, Stakes, Tier

SURE = 0.9
"""From this confidence on, high stakes alone are not reason to ask."""

MUST_ASK: dict[DecisionKind, str] = {
    "methodology": "methodology is always asked: parameters, thresholds and procedures decide what a result means",
    "priority": "a choice of priorities is always asked: it decides what the budget is spent on",
    "experimental_design": "experimental design is always asked: it cannot be fixed once there is data",
    "statistics": "statistics are always asked: the wrong test gives a number all the same",
    "spec_deviation": "a deviation from the spec is always asked, before it is made",
    "gpu_spend": "what blocks GPU spend is always asked, before the money is spent",
}
MUST_NOT_ASK: dict[DecisionKind, str] = {
    "trivial": "trivia are not asked: choose, note what was chosen, and continue",
    "execution": "carrying out what is decided is not asked: do it; the gate judges the result",
    "technical": "a technical choice of these stakes is not asked: choose, note what was chosen, and continue",
}
HIGH_STAKES: tuple[Stakes, ...] = ("high", "critical")

GUARDED = (
    r"alpha|significan\w+|p-?values?|mcnemar|statistic\w*|power|sample sizes?|hypothes\w+|minimum effect|confidence "
    r"intervals?|held-?out|test (?:set|split|items?)|baselines?|control (?:arm|group|run)s?|criteri\w+|thresholds?|"
    r"gates?|metrics?|accuracy|evaluat\w+|leak\w*|contaminat\w*|deviat\w*|skip\w*|waiv\w*|relax\w*|bypass\w*|"
    r"overrid\w*|amend\w*|exclud\w+|discard\w*|cherry\w*|re-?run\w*|seeds?|budget|spend\w*|gpus?|pods?|usd|dollars?"
)
"""Words of what must be asked, even in a question labelled trivial, technical or execution."""
CHANGES = (
    r"chang\w+|rais\w+|lower\w*|increas\w+|decreas\w+|reduc\w+|relax\w*|loosen\w*|tighten\w*|drop\w*|skip\w*|"
    r"replac\w+|instead|different\w*|another|alter\w*|modif\w+|adjust\w*|switch\w*|extend\w*|shorten\w*|should|may|"
    r"can|could|would|better|enough|right|appropriate|okay|ok|allowed|deviat\w*|reconsider\w*|wrong|valid|justif\w+"
)
"""Words of a question about another value, or about whether the value is right: the spec cannot answer it."""
SPEAKS_OF_SPEC = r"spec|specs|specified|specification|registered|registration|pre-?registered"


class Facts(NamedTuple):
    """What the table needs to know about a question."""

    kind: DecisionKind | None
    stakes: Stakes | None
    confidence: float | None
    guarded: str
    """The first of the guarded words in the question, or empty."""
    in_spec: tuple[NamedSpecValues, ...]
    """What the question names in the registered spec, if it only asks for its value."""
    proposed: tuple[ProposedValue, ...]


def policy_answer(request: QuestionRequest, registered: SpecValueIndex | None) -> PolicyAnswer:
    """Return whether a question goes to a reviewer, and by which rule; ``registered`` is None outside a session."""
    return apply(facts_of(request, registered))


def facts_of(request: QuestionRequest, registered: SpecValueIndex | None) -> Facts:
    """Read the words of a question for :func:`apply`."""
    text = "\n".join((request.topic, request.question, *request.options))
    in_spec: tuple[NamedSpecValues, ...] = ()
    proposed: tuple[ProposedValue, ...] = ()
    if registered is not None:
        asks_spec = request.kind == "already_in_spec" or (request.kind is None and _first(SPEAKS_OF_SPEC, text))
        if asks_spec and not request.options and not _first(CHANGES, text):
            in_spec = tuple(registered.named_in(text))
        proposed = tuple(registered.proposed_in(text))
    return Facts(request.kind, request.stakes, request.confidence, _first(GUARDED, text), in_spec, proposed)


def apply(facts: Facts) -> PolicyAnswer:
    """Apply the table: the first rule that fits answers."""
    kind = facts.kind
    if kind in MUST_ASK:
        return _ask(kind, MUST_ASK[kind])
    outside = [value for value in facts.proposed if not value.inside]
    if outside:
        message = ", ".join(f"{value.name} = {value.value:g}" for value in outside)
        limits = tuple(limit for value in outside for limit in value.limits)
        return _ask("outside_range", f"{message} leaves what is registered: that is a deviation from the spec", limits)
    if facts.in_spec:
        spec_values = tuple(dict.fromkeys(value for named in facts.in_spec for value in named.values))
        names = ", ".join(named.name for named in facts.in_spec)
        return _answer(
            "in_spec", f"the registered spec says it ({names}): what the spec says is not asked", spec_values
        )
    if facts.stakes in HIGH_STAKES and (facts.confidence is None or facts.confidence < SURE):
        sure = "not stated" if facts.confidence is None else f"{facts.confidence:g}"
        return _ask("stakes", f"stakes are {facts.stakes} and confidence is {sure}, below {SURE:g}")
    if kind is None:
        return _ask("ambiguous", "no kind of decision is stated: in doubt it is asked")
    if kind == "already_in_spec":
        return _ask("not_in_spec", "it is said to be in the spec, and no registered value was found that answers it")
    if facts.guarded:
        return _ask("speaks_of", f"it is called {kind} and speaks of '{facts.guarded}', which is asked")
    if kind == "technical" and facts.stakes is None:
        return _ask("ambiguous", "a technical choice without stakes: in doubt it is asked")
    inside: tuple[SpecValue, ...] = tuple(limit for value in facts.proposed for limit in value.limits)
    return _answer("in_range" if inside else kind, MUST_NOT_ASK[kind], inside)


def tier_of(kind: DecisionKind | None, stakes: Stakes | None, has_plan: bool) -> Tier:
    """Return the effort for a question: high (as at a gate) if critical or blocking GPU spend, low to check a plan."""
    if kind == "gpu_spend" or stakes == "critical":
        return "high"
    return "low" if stakes == "low" and has_plan else "medium"


def policy_digest() -> str:
    """Return the digest of the table and the words, so that an audit applies only the policy that was applied."""
    return digest_value([SURE, MUST_ASK, MUST_NOT_ASK, list(HIGH_STAKES), GUARDED, CHANGES, SPEAKS_OF_SPEC])


def _first(words: str, text: str) -> str:
    match = re.search(rf"\b(?:{words})\b", text, re.IGNORECASE)
    return match.group(0) if match else ""


def _ask(rule: str, why: str, spec_values: tuple[SpecValue, ...] = ()) -> PolicyAnswer:
    return PolicyAnswer(ask=True, rule=f"ask.{rule}", why=why, values=spec_values)


def _answer(rule: str, why: str, spec_values: tuple[SpecValue, ...] = ()) -> PolicyAnswer:
    return PolicyAnswer(ask=False, rule=f"answer.{rule}", why=why, values=spec_values)
