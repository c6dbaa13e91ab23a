"""Which packages a session needs, of which extra, and for what: asked by `spec check`, `start`, pods and launchers."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

from specs.session.session_spec import SessionSpec
from specs.stages.registry import Stage, kind_of

JOBS = "train"


class NeededPackage(NamedTuple):
    """A package, the extra of Peergate that brings it, and who asks for it."""

    module: str
    """The name under which it is imported."""
    extra: str
    where: str
    """The stage, or the part of the spec."""


def needed_packages(spec: SessionSpec) -> list[NeededPackage]:
    """Return the packages that a session needs where it runs, each once, in the order of the spec."""
    needed = [*_of_spec(spec), *(package for stage in spec.stages for package in _of_stage(spec, stage))]
    first = {(package.module, package.extra): package for package in reversed(needed)}
    return [package for package in needed if first[package.module, package.extra] is package]


def needed_extras(spec: SessionSpec) -> list[str]:
    """Return the extras of Peergate that a session needs where it runs; that of jobs first, which every pod has."""
    return list(dict.fromkeys((JOBS, *(package.extra for package in needed_packages(spec)))))


def missing_packages(spec: SessionSpec) -> list[NeededPackage]:
    """Return the packages of jobs and models that are not installed here, for what runs here."""
    stages = {stage.name for stage in spec.stages}
    local = {stage.name for stage in spec.stages if spec.launcher_of(stage.name) == "local"}
    return [
        package
        for package in needed_packages(spec)
        if (package.where not in stages or package.where in local) and find_spec(package.module) is None
    ]


def sandboxed_parts(spec: SessionSpec) -> list[str]:
    """Return the stages and parts of a spec that run code in a sandbox, which needs bubblewrap where they run."""
    own = ["verifier"] if spec.task.startswith("./") and spec.verifier.sandbox else []
    kinds = [(stage.name, kind_of(stage)) for stage in spec.stages]
    return own + [name for name, kind in kinds if kind.runs_code or kind.judged_in_sandbox or kind.environment]


def _of_spec(spec: SessionSpec) -> Iterator[NeededPackage]:
    parties = (("builder", spec.builder), *(("reviewer", reviewer) for reviewer in spec.reviewers()))
    for where, party in parties:
        if party.asks_a_model:
            yield NeededPackage("anthropic" if party.vendor == "anthropic" else "openai", "reviewers", where)
    if spec.builder.vendor == "external":
        yield NeededPackage("mcp", "mcp", "builder")
    sources = {"model": spec.model, "control": spec.control}
    for where, source in sources.items():
        if source is not None and source.source.startswith("embedded:"):
            yield NeededPackage("gguf", "demo", where)


def _of_stage(spec: SessionSpec, stage: Stage) -> Iterator[NeededPackage]:
    kind, parameters = kind_of(stage), stage.parameters
    if kind.loads_model:
        yield NeededPackage("torch", JOBS, stage.name)
        yield NeededPackage("transformers", JOBS, stage.name)
    if kind.trains and not kind.runs_code:
        for module in ("trl", "datasets", "accelerate"):
            yield NeededPackage(module, JOBS, stage.name)
    method = getattr(parameters, "method", "full")
    if method in ("lora", "qlora"):
        yield NeededPackage("peft", JOBS, stage.name)
    if method == "qlora" or getattr(parameters, "optimizer_kind", "adamw") != "adamw":
        yield NeededPackage("bitsandbytes", "qlora", stage.name)
    if getattr(parameters, "distributed", None) is not None:
        yield NeededPackage("torchft", JOBS, stage.name)
    if kind.name == "export":
        yield NeededPackage("gguf", "gguf", stage.name)
        if parameters.verify == "llama_cpp":
            yield NeededPackage("cyllama", "gguf", stage.name)
    if kind.environment == "lm_eval" or getattr(parameters, "asked_by_lm_eval", False):
        yield NeededPackage("lm_eval", "lm-eval", stage.name)
    if getattr(parameters, "engine", None) == "llama":
        yield NeededPackage("llama_cpp", "llama", stage.name)
    if spec.launcher_of(stage.name) == "ray":
        yield NeededPackage("ray", "ray", stage.name)
