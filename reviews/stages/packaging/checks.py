"""The judge of ``package`` stages: is the package the model that was evaluated?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reviews.checks.definition import CheckOutcome, CheckRegistry, join_names, need
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from reviews.evidence.weight_lineage import trained_from
from specs.stages.base.metric import MetricSet
from specs.stages.evaluation.parameters import EvaluateParameters
from specs.stages.packaging.rows import PackageRow
from specs.system.digests import digest_file, digest_path
from specs.system.errors import EvidenceMissing
from specs.system.text import plain
from training.rules.packaging.checkpoint_folder import GENERATION
from training.rules.packaging.gguf_settings import FORCED
from training.rules.weight_files import describing, read_description

CHECKS = CheckRegistry(("package",))
_GREEDY: dict[str, Any] = {**FORCED, "do_sample": False, "length_penalty": 1.0}
"""Settings of generation_config.json that change greedy answers, with the values at which they do not."""
_WRITTEN_BY = ("transformers_version", "_name_or_path", "is_local", "local_files_only")
_LOADED = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".onnx", ".pkl", ".py")


def summarise_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return whether each probe gives the same tokens; errors as :func:`read_rows`."""
    rows = read_rows(evidence.outputs.get("rows"), PackageRow, "package rows")
    return [{"item": row.item, "tokens": len(row.expected), "identical": row.expected == row.reloaded} for row in rows]


@CHECKS.add(
    "package.weights",
    "The package holds the evaluated weights",
    source="another checkpoint shipped",
    reads_weights=True,
)
def _check_weights(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the package with the checkpoint of the registered comparison: weights, configuration and tokenizer."""
    before, after = evidence.inputs.get("model"), evidence.outputs.get("package")
    if before is None or after is None:
        raise EvidenceMissing("checkpoint or package is missing")
    spec = evidence.resolved.spec
    packed, evaluated = evidence.stage.inputs["model"], spec.stage(spec.analysis.treatment).inputs.get("model")
    change = f"{packed} is packed, the registered comparison evaluates {evaluated}"
    if evaluated not in trained_from(spec, packed):
        return CheckOutcome("FAIL", change, repairable=False)
    names = sorted(path.name for path in before.glob("*.safetensors"))
    texts = sorted(path.relative_to(after).as_posix() for path in after.rglob("*.safetensors"))
    if not names or not texts:
        raise EvidenceMissing("no weight files to compare")
    if names != texts or any(digest_file(before / name) != digest_file(after / name) for name in names):
        return CheckOutcome(
            "FAIL", "the weights in the package are not those of the evaluated checkpoint", repairable=False
        )
    if change := changed_since(evidence, "model"):
        return CheckOutcome("FAIL", change, repairable=False)
    if wrong := [*_loaded_instead(before, after), *_described_otherwise(before, after)]:
        change = f"the package computes otherwise than the evaluated checkpoint: {join_names(wrong)}"
        return CheckOutcome(
            "FAIL", change, float(len(wrong)), tuple({"file": text} for text in wrong), repairable=False
        )
    if packed != evaluated:
        return CheckOutcome("WARN", f"{change}: it was trained on after that, and never evaluated")
    return CheckOutcome("PASS", f"{len(names)} weight files are those of the evaluated checkpoint", float(len(names)))


def changed_since(evidence: Evidence, role: str) -> str:
    """Return that an input is not what was granted any more, as by the job that read it; empty if it is."""
    granted = evidence.grant.inputs.get(role) if evidence.grant else None
    text = digest_path(evidence.inputs[role])
    if text == granted:
        return ""
    return f"input '{role}' has changed since it was evaluated: it is {text}, expected {granted}"


def _loaded_instead(before: Path, after: Path) -> list[str]:
    """Return the files from which a loader could take other weights or code, and which the checkpoint does not have."""
    names = [path.relative_to(after) for path in sorted(after.rglob("*")) if path.suffix in _LOADED]
    return [
        f"{name.as_posix()} is not part of it"
        for name in names
        if not (before / name).is_file() or digest_file(before / name) != digest_file(after / name)
    ]


def _described_otherwise(before: Path, after: Path) -> list[str]:
    """Return the files that decide what the weights compute and read and are not those of the checkpoint."""
    names = sorted({*describing(before), *describing(after)})
    differing = [
        name
        for name in names
        if read_description(before / name, _WRITTEN_BY) != read_description(after / name, _WRITTEN_BY)
    ]
    return [f"{name} is {'another' if (after / name).is_file() else 'missing'}" for name in differing]


@CHECKS.add(
    "package.decoding",
    "What ships decodes as it was evaluated",
    source="a package that samples at 1.0 with a repetition penalty, evaluated greedily without one",
    blocking=False,
)
def _check_decoding(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the package's own generation settings, which its users get, with the evaluated decoding."""
    package, spec = evidence.outputs.get("package"), evidence.resolved.spec
    if package is None:
        raise EvidenceMissing("the package is missing")
    parameters = spec.stage(spec.analysis.treatment).parameters
    if not isinstance(parameters, EvaluateParameters):
        return CheckOutcome("NOT_APPLICABLE", "the registered comparison decodes otherwise")
    settings = read_description(package / GENERATION, ())
    settings = settings if isinstance(settings, dict) else {}
    named = {name: settings[name] for name in _GREEDY if settings.get(name) is not None}
    wanted = _GREEDY
    if parameters.temperature is not None:
        wanted = wanted | {"do_sample": True, "temperature": parameters.temperature, "top_p": parameters.top_p}
        named = {"do_sample": False} | named
    others = [f"{name} is {plain(str(value), 60)}" for name, value in named.items() if value != wanted[name]]
    limit = settings.get("max_new_tokens") or settings.get("max_length")
    if isinstance(limit, int) and limit < parameters.max_new_tokens:
        others.append(f"answers end after {limit} tokens instead of {parameters.max_new_tokens}")
    if parameters.stops:
        others.append(f"answers were cut at {join_names(map(repr, parameters.stops))}, and the package has no stops")
    if not others:
        how = "greedily" if parameters.temperature is None else f"at temperature {parameters.temperature:g}"
        return CheckOutcome("PASS", f"the package decodes {how}, as it was evaluated", 0.0)
    message = f"users of the package get other answers than were evaluated: {'; '.join(others)}"
    return CheckOutcome("WARN", message, float(len(others)), tuple({"setting": text} for text in others))


@CHECKS.add("package.probes", "The registered probes were answered", source="a package that was never loaded")
def _check_probes(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    probes = need(metrics, "probes")
    rows = read_rows(evidence.outputs.get("rows"), PackageRow, "package rows")
    texts = [item.id for item in evidence.heldout][: evidence.parameters.get("probe_items", 0)]
    if [row.item for row in rows] != texts:
        return CheckOutcome("FAIL", f"{probes:.0f} probes were answered, expected the first {len(texts)} items", probes)
    silent = sum(not row.expected for row in rows)
    if silent == len(rows):
        return CheckOutcome("FAIL", "every answer is empty: equal outputs show nothing", float(silent))
    return CheckOutcome("PASS", f"{len(rows)} probes were answered before and after reloading", probes)
