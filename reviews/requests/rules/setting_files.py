"""Rules on YAML and JSON: session specs are loaded, linted and checked as designs; training settings name a seed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reviews.gate.packet_derivation import check_design_files
from reviews.requests.rules.rule_findings import RuleFindings, RuleMaterial, line_of, place
from specs.loading.loading import load_spec
from specs.system.errors import PeergateError, SpecError
from specs.system.yaml.yaml_positions import UnreadableError, read_yaml
from specs.trail.requested_review import Citation, ReadFile
from specs.trail.verdict import CheckResult

_PLACES = {
    "design.power": r"\s*analysis\s*:",
    "design.seeds": r"\s*seeds?\s*:",
    "design.independence": r"\s*reviewer\s*:",
    "design.cost": r"\s*budget\s*:",
    "design.duplicates": r"\s*data\s*:",
}
"""The line of a spec that a design check is about; for the others that of the held-out split."""
_TRAINING = ("learning_rate", "num_train_epochs", "gradient_accumulation_steps", "per_device_train_batch_size")
_SEED = re.compile(r"(?:^|_)seeds?$")


def check_settings(material: RuleMaterial) -> RuleFindings:
    """Look at every YAML and JSON file that was read."""
    result = RuleFindings()
    for file in material.ending(".yaml", ".yml", ".json"):
        data = _data(file)
        if not isinstance(data, dict):
            continue
        result.looked_at.append(file.name)
        if data.keys() >= {"analysis", "heldout"} and file.name in material.sources:
            _check_spec(result, file, material)
            continue
        keys = list(_keys(data))
        settings = next((key for key in keys if key in _TRAINING), "")
        if settings and not any(map(_SEED.search, keys)):
            message = "training settings without a seed: what they give cannot be repeated"
            result.issue("HIGH", message, [place(file, line_of(file, rf"""\s*(?:- )?["']?{settings}["']?\s*:"""))])
    return result


def _check_spec(result: RuleFindings, file: ReadFile, material: RuleMaterial) -> None:
    """Load a session spec as `peergate spec check` does, and check its design as the design gate does."""
    path = material.sources[file.name]
    named = _named_files(path, _data(file))
    hidden = [path for path in named if not material.readable(path)]
    if hidden:
        result.not_judged.append(f"{file.name}: its data may not be read here, so neither spec nor design was checked")
        return
    try:
        resolved = load_spec(path)
        checks = check_design_files(resolved, resolved.read_data().values(), resolved.attempt_costs())
    except SpecError as error:
        for problem in error.problems:
            here = Path(problem.path).resolve() == path
            message = str(problem).split(": ", 1)[-1]
            where = place(file, problem.line) if here else _naming(file, Path(problem.path))
            result.issue("CRITICAL", f"{'' if here else Path(problem.path).name + ': '}{message}", [where])
        result.recommend("Fix the spec until `peergate spec check` is silent.", "A spec with problems is not started.")
        return
    except (PeergateError, OSError, ValueError) as error:
        result.not_judged.append(f"{file.name}: cannot be loaded as a session spec: {error}")
        return
    for check in checks:
        _take(result, file, check)


def _take(result: RuleFindings, file: ReadFile, check: CheckResult) -> None:
    where = [place(file, line_of(file, _PLACES.get(check.id, r"\s*heldout\s*:")))]
    fact = f"design check {check.id} is {check.status}"
    message = f"{fact}: {check.detail}"
    if check.status == "FAIL":
        result.issue("CRITICAL" if check.blocking else "HIGH", message, where)
        result.recommend(
            "Fix the design before it is registered.",
            "The design gate closes on a failed check, before anything is paid for.",
        )
    elif check.status in ("BLOCKED", "ERROR"):
        result.issue("HIGH", message, where)
    elif check.status == "WARN":
        result.concern(message, where) if check.id == "design.seeds" else result.issue("SUGGESTION", message, where)
    elif check.status == "PASS":
        result.passed.append((fact, where[0]))


def _data(file: ReadFile) -> Any:
    try:
        if file.name.lower().endswith(".json"):
            return json.loads(file.text)
        return read_yaml(file.text.encode("utf-8")).data
    except (UnreadableError, ValueError, RecursionError):
        return None


def _named_files(path: Path, data: dict[str, Any]) -> list[Path]:
    """Return the files a spec names, as far as its keys have the form of a spec's."""
    heldout, more = data.get("heldout"), data.get("data")
    named: list[Any] = [data.get("constitution"), heldout.get("path") if isinstance(heldout, dict) else None]
    if isinstance(more, dict):
        named += [value.get("path") for value in more.values() if isinstance(value, dict)]
    return [(path.parent / value).resolve() for value in named if isinstance(value, str) and "\x00" not in value]


def _naming(file: ReadFile, other: Path) -> Citation:
    """Return the line of a spec that names another file."""
    return place(file, line_of(file, rf".*{re.escape(other.name)}"))


def _keys(data: Any) -> Iterator[str]:
    """Yield every key that a JSON value holds, the outer ones first."""
    if isinstance(data, dict):
        yield from map(str, data)
    if isinstance(data, dict | list):
        for value in data.values() if isinstance(data, dict) else data:
            yield from _keys(value)
