"""Did the registered task of a benchmark run, do the rows follow from its log, and its scores from the answers?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reviews.checks.definition import Checks, Found, listed, manifest_of, unless
from reviews.evidence.evidence import Evidence
from reviews.evidence.right_answers import targets_of
from reviews.stages.evaluation.benchmark_rows import Sampled, log_of, sampled
from specs.errors import EvidenceMissing
from specs.stages.artifacts import Item
from specs.stages.evaluation.parameters import InspectParameters, LmEvalParameters
from specs.stages.metric import MetricSet
from training.rules.evaluation.inspect_log import Log, Sample
from training.rules.evaluation.inspect_scores import is_right, scored_again

SCORES = "benchmark.scores"
"""Its figure is the number of scores that nothing computed again, where it warns."""
_FORMS: dict[str, type[InspectParameters | LmEvalParameters]] = {
    "inspect": InspectParameters,
    "lm_eval": LmEvalParameters,
}
CHECKS = Checks(("inspect", "lm_eval"))


def _granted(evidence: Evidence) -> InspectParameters | LmEvalParameters:
    return evidence.granted(_FORMS[evidence.stage.kind])


def _rows(evidence: Evidence) -> tuple[Sampled, ...]:
    return sampled(evidence, evidence.outputs.get("rows"))


@CHECKS.add("benchmark.sandbox", "The task ran in a sandbox", source="benchmarks that fetch what they like")
def _sandbox(evidence: Evidence, _: MetricSet | None) -> Found:
    """Read the manifest, which Peergate's own process beside the sandbox wrote."""
    sandbox = _stated(evidence).get("sandbox")
    if not isinstance(sandbox, str) or not sandbox or sandbox == "none":
        return Found("FAIL", "the manifest names no sandbox", repairable=False)
    return Found("PASS", f"the task ran in {sandbox}, from where only the model was reached")


@CHECKS.add("benchmark.log", "The rows are those of the log", source="samples dropped or scores edited after the run")
def _log(evidence: Evidence, _: MetricSet | None) -> Found:
    """Compare every row with the sample of its item in the log, and the log's samples with the items."""
    log, rows = log_of(evidence), _rows(evidence)
    if log.status != "success":
        return Found("FAIL", f"the log says that the task ended with status {log.status!r}", repairable=False)
    samples: dict[str, Sample] = {}
    for one in log.samples:
        if one.id in samples or one.epoch != 1 or one.error:
            return Found("FAIL", f"the log has '{one.id}' twice, with an error or repeated", repairable=False)
        samples[one.id] = one
    if set(samples) != {one.item.id for one in rows}:
        missing = [one.item.id for one in rows if one.item.id not in samples]
        message = f"the log has {len(samples)} samples, the rows {len(rows)}"
        message += f"; without a sample: {listed(missing)}" if missing else ""
        return Found("FAIL", message, repairable=False)
    score = _granted(evidence).score
    wrong = [
        {"item": one.item.id, "differs": ", ".join(found)}
        for one in rows
        if (found := list(_differing(one, samples[one.item.id], score)))
    ]
    message = f"{len(wrong)} rows are not what the log says: {listed(one['item'] for one in wrong)}"
    return unless(wrong, message, f"all {len(rows)} rows are those of the log", repairable=False)


def _differing(one: Sampled, sample: Sample, score: str) -> Iterator[str]:
    row, claimed = one.row, {each.name: each.value for each in sample.scores}
    if {name: _plain(value) for name, value in row.scores.items()} != {
        name: _plain(value) for name, value in claimed.items()
    }:
        yield "scores"
    if score not in claimed or row.correct != is_right(claimed[score]):
        yield "correct"
    if row.output != sample.output:
        yield "output"
    if row.target != sample.target:
        yield "target"
    if [call.output for call in row.calls] != [answer.text for answer in sample.answers]:
        yield "answers"


def _plain(value: str | bool | float | None) -> tuple[str, Any]:
    """Return a score so that true and 1 are not the same."""
    kind = "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
    return kind, value


@CHECKS.add("benchmark.task", "The registered task ran as granted", source="another task under a benchmark's name")
def _task(evidence: Evidence, _: MetricSet | None) -> Found:
    """Compare task, arguments, environment and requests with what was granted, and with the baseline's."""
    given, log, stated = _granted(evidence), log_of(evidence), _stated(evidence)
    args = given.args if isinstance(given, InspectParameters) else {}
    faults: list[str] = []
    named = given.task.rpartition("/")[2]
    if log.task.rpartition("/")[2] != named:
        faults.append(f"the log is that of the task {log.task!r}")
    if set(log.arguments) != set(args):
        faults.append(f"the task was given {listed(sorted(log.arguments)) or 'no arguments'}")
    faults += [
        f"the argument '{name}' was {log.arguments.get(name)!r}"
        for name, value in args.items()
        if "{items}" not in str(value) and log.arguments.get(name) != value
    ]
    if faults:
        return Found("FAIL", "; ".join(faults), float(len(faults)), repairable=False)
    long = [
        one.item.id for one in _rows(evidence) if any(c.max_new_tokens > given.max_new_tokens for c in one.row.calls)
    ]
    if long:
        return Found("FAIL", f"more tokens than granted were asked for at {listed(long)}", repairable=False)
    before = evidence.baseline_manifest
    if before is not None and (theirs := before.facts.get("library", {}).get("environment")) != stated["environment"]:
        message = f"the baseline ran in the environment {theirs}, this stage in {stated['environment']}"
        return Found("FAIL", message, repairable=False)
    return Found("PASS", f"task {given.task} with {stated.get('name')} {stated.get('version')}, as granted", 0.0)


@CHECKS.add(
    "benchmark.items",
    "The model was asked the items, and their answers were due",
    source="a task with other data",
)
def _items(evidence: Evidence, _: MetricSet | None) -> Found:
    """Look for each item's prompt in what was asked, and compare the target with the item's answers.

    A task may write the question in its own words, or the target in another form: that is a warning, with the items.
    """
    rows = _rows(evidence)
    elsewhere = [one.item.id for one in rows if not _is_asked(one)]
    targets = [one.item.id for one in rows if not all(_is_due(target, one.item) for target in one.row.target)]
    parts = [
        f"{len(some)} {what}, for example '{some[0]}'"
        for some, what in (
            (elsewhere, "items are not asked in their own words"),
            (targets, "targets are not the items' answers"),
        )
        if some
    ]
    if parts:
        shown = tuple({"item": id} for id in dict.fromkeys((*elsewhere, *targets)))
        return Found("WARN", "; ".join(parts), float(len(elsewhere) + len(targets)), shown)
    return Found("PASS", f"all {len(rows)} items were asked in their own words, their answers were the targets", 0.0)


def _is_asked(one: Sampled) -> bool:
    return any(one.item.prompt.strip() in said.content for call in one.row.calls for said in call.messages)


def _is_due(target: str, item: Item) -> bool:
    """Say whether a target is an answer of the item, or its last word, as after the ``####`` of GSM8K."""
    return any(one == target or one.endswith((f" {target}", f"\n{target}")) for one in targets_of(item))


@CHECKS.add(SCORES, "The scores follow from the answers", source="a benchmark's number, believed as it was")
def _scores(evidence: Evidence, _: MetricSet | None) -> Found:
    """Carry the registered scorer out again where it is one of the library's plain ones; else it stays a claim."""
    rows, log = _rows(evidence), log_of(evidence)
    found = {one.item.id: _again(log, evidence, one) for one in rows}
    wrong = [
        {"item": one.item.id, "output": one.text, "target": ", ".join(one.row.target), "claimed": one.passed}
        for one in rows
        if found[one.item.id] not in (None, one.passed)
    ]
    if wrong:
        message = f"{len(wrong)} scores do not follow from the answers: {listed(str(one['item']) for one in wrong)}"
        return Found("FAIL", message, float(len(wrong)), tuple(wrong), repairable=False)
    claims = sum(value is None for value in found.values())
    if claims:
        message = f"{claims} of {len(rows)} scores are the claim of the task's scorer: nothing here computes them again"
        return Found("WARN", message, float(claims))
    return Found("PASS", f"all {len(rows)} scores follow from answer and target", 0.0)


def _again(log: Log, evidence: Evidence, one: Sampled) -> bool | None:
    # A solver may have put a text of its own in the place of the answer.
    if one.text not in {call.output for call in one.row.calls}:
        return None
    scorer, options = log.scorers.get(_granted(evidence).score, ("", {}))
    return scored_again(scorer, options, one.text, one.row.target)


def _stated(evidence: Evidence) -> dict[str, Any]:
    found = manifest_of(evidence).facts.get("library")
    if not isinstance(found, dict) or not isinstance(found.get("environment"), str):
        raise EvidenceMissing("the manifest does not say where the task ran")
    return found
