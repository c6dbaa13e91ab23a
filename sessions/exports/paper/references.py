"""The works that a paper cites: only those whose method, model or library its sessions used."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reviews.history.history import History
from specs.system.errors import PeergateError

_ENTRY = re.compile(r"^@\w+\{([^,]+),\n.*?^\}\n", re.MULTILINE | re.DOTALL)


class UsedParts(NamedTuple):
    """What the sessions of a paper used."""

    stages: tuple[Any, ...]
    """The stages whose jobs were launched."""
    packages: dict[str, set[str]]
    """Versions of libraries, as the jobs stated them."""
    sources: frozenset[str]
    """Of the models that were loaded."""
    metrics: frozenset[str]
    """Ids of what was measured."""
    has_shares: bool
    """Whether shares with an interval were measured."""
    kinds_compared: bool
    seeds_compared: bool


class Reference(NamedTuple):
    """A work, what it is cited for, and when."""

    key: str
    """Its key in ``references.bib``."""
    words: str
    is_used: Callable[[UsedParts], bool]


def _of_kind(*kinds: str) -> Callable[[UsedParts], bool]:
    return lambda parts: any(stage.kind in kinds for stage in parts.stages)


def _of_method(*methods: str) -> Callable[[UsedParts], bool]:
    return lambda parts: any(getattr(stage.parameters, "method", None) in methods for stage in parts.stages)


def _of_package(name: str) -> Callable[[UsedParts], bool]:
    return lambda parts: name in parts.packages


def _of_model(word: str) -> Callable[[UsedParts], bool]:
    return lambda parts: any(word in source.lower() for source in parts.sources)


def _of_metric(name: str) -> Callable[[UsedParts], bool]:
    return lambda parts: name in parts.metrics


def _has_shares(parts: UsedParts) -> bool:
    return parts.has_shares


def _compares_kinds(parts: UsedParts) -> bool:
    return parts.kinds_compared


def _compares_seeds(parts: UsedParts) -> bool:
    return parts.seeds_compared


def _reads_constitution(parts: UsedParts) -> bool:
    return any("constitution" in stage.inputs.values() for stage in parts.stages)


REFERENCES: tuple[Reference, ...] = (
    Reference("mcnemar1947", "the test of paired proportions, in its exact form", _of_metric("mcnemar_p")),
    Reference("bonett2012", "the interval of the gain", _of_metric("accuracy_gain")),
    Reference("wilson1927", "intervals of shares", _has_shares),
    Reference("cohen1988", "the effect size h", _of_metric("cohens_h")),
    Reference("benjamini1995", "p-values adjusted over the kinds", _compares_kinds),
    Reference("holm1979", "p-values adjusted over the arms", _of_metric("arms_p")),
    Reference("owen2007", "the interval over seeds and items", _compares_seeds),
    Reference("bai2022constitutional", "critique and revision along a constitution", _reads_constitution),
    Reference("wang2023selfinstruct", "instructions written by the model", _of_kind("self_instruct")),
    Reference("rafailov2023dpo", "direct preference optimization", _of_kind("dpo")),
    Reference("shao2024deepseekmath", "group relative policy optimization", _of_kind("grpo")),
    Reference("hu2022lora", "low-rank adapters", _of_method("lora", "qlora")),
    Reference("dettmers2023qlora", "adapters on weights of four bits", _of_method("qlora")),
    Reference("smollm2", "the report of the model", _of_model("smollm2")),
    Reference("qwen25", "the report of the model family", _of_model("qwen2.5")),
    Reference("wolf2020transformers", "the library transformers", _of_package("transformers")),
    Reference("vonwerra2020trl", "the library TRL", _of_package("trl")),
    Reference("paszke2019pytorch", "the library PyTorch", _of_package("torch")),
    Reference("biderman2024lm", "the benchmarks of lm-eval", _of_kind("lm_eval")),
    Reference("zheng2023judging", "a model that judges pairs of answers", _of_kind("pairwise_judge")),
)


def used_parts(histories: Sequence[History], reports: Sequence[dict[str, Any]], *, over_seeds: bool) -> UsedParts:
    """Return what sessions used, from their trails and reports."""
    stages, packages = list[Any](), dict[str, set[str]]()
    sources, metrics, shares = set[str](), set[str](), False
    for history, report in zip(histories, reports, strict=True):
        spec = history.resolved.spec
        sources |= {spec.model.source, spec.model.shape or ""} if report["model"] else set()
        for stage in spec.stages:
            attempts = [attempt for attempt in history.attempts(stage.name) if attempt.launch]
            stages += [stage] if attempts else []
            if attempts and "control" in stage.inputs.values() and spec.control:
                sources.add(spec.control.source)
            for name, version in _packages(attempts):
                packages.setdefault(name, set()).add(version)
        measured = list(_metrics(report))
        metrics |= {metric["id"] for metric in measured}
        shares |= any(metric["interval"] and metric["id"] != "accuracy_gain" for metric in measured)
    kinds = any(len(report["accuracy_by_kind"]) > 1 for report in reports)
    return UsedParts(tuple(stages), packages, frozenset(sources), frozenset(metrics), shares, kinds, over_seeds)


def _packages(attempts: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for attempt in attempts:
        try:
            manifest = attempt.manifest
        except (PeergateError, ValueError):
            # A job may have left anything; then it states no version.
            continue
        if manifest is not None:
            yield from manifest.packages.items()


def _metrics(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for stage in report["stages"]:
        for attempt in stage["attempts"]:
            yield from attempt["metrics"].values()


def bibliography(keys: set[str]) -> str:
    """Return the BibTeX of the cited works, in the order of :data:`REFERENCES`; raises KeyError for an unknown work."""
    text = Path(__file__).with_name("references.bib").read_text(encoding="utf-8")
    entries = {match[1]: match[0] for match in _ENTRY.finditer(text)}
    return "\n".join(entries[reference.key] for reference in REFERENCES if reference.key in keys)
