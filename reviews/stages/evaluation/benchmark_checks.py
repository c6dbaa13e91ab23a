"""Did the registered task of a benchmark run, do the rows follow from its log, and its scores from the answers?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from reviews.checks.definition import CheckOutcome, CheckRegistry, join_names, manifest_of, unless
from reviews.evidence.evidence import Evidence
from reviews.evidence.right_answers import targets_of
from reviews.evidence.row_lines import answer_of
from reviews.stages.evaluation.benchmark import BenchmarkSample, log_of, read_benchmark_samples
from reviews.stages.evaluation.verifier_probes import ATTACKS, ProbeTarget, run_attacks
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import MetricSet
from specs.stages.evaluation.parameters import InspectParameters, LmEvalParameters
from specs.system.errors import EvidenceMissing
from specs.system.text import plural
from training.rules.evaluation.benchmark_scores import is_right, scored_again
from training.rules.evaluation.inspect_log import Log, LoggedSample

SCORES = "benchmark.scores"
"""Its figure is the number of scores that nothing computed again, where it warns."""
MOST_ATTACKED = 50
"""Items on which a scorer is attacked: the first of them."""
_FORMS: dict[str, type[InspectParameters | LmEvalParameters]] = {
    "inspect": InspectParameters,
    "lm_eval": LmEvalParameters,
}
CHECKS = CheckRegistry(("inspect", "lm_eval"))


def _parse_parameters(evidence: Evidence) -> InspectParameters | LmEvalParameters:
    return evidence.parse_parameters(_FORMS[evidence.stage.kind])


def _rows(evidence: Evidence) -> tuple[BenchmarkSample, ...]:
    return read_benchmark_samples(evidence, evidence.outputs.get("rows"))


@CHECKS.add("benchmark.sandbox", "The task ran in a sandbox", source="benchmarks that download arbitrary files")
def _check_sandbox(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Read the manifest, which Peergate's own process next to the sandbox wrote."""
    sandbox = _read_library_facts(evidence).get("sandbox")
    if not isinstance(sandbox, str) or not sandbox or sandbox == "none":
        return CheckOutcome("FAIL", "the manifest names no sandbox", repairable=False)
    return CheckOutcome("PASS", f"the task ran in {sandbox}, from where only the model was reached")


@CHECKS.add("benchmark.log", "The rows equal the log", source="samples dropped or scores edited after the run")
def _check_log(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare every row with the sample of its item in the log, and the log's samples with the items."""
    log, rows = log_of(evidence), _rows(evidence)
    if log.status != "success":
        return CheckOutcome("FAIL", f"the log says that the task ended with status {log.status!r}", repairable=False)
    samples: dict[tuple[str, int], LoggedSample] = {}
    for sample in log.samples:
        key = sample.id, sample.epoch - 1
        if key in samples or sample.error:
            return CheckOutcome("FAIL", f"the log has '{sample.id}' twice or with an error", repairable=False)
        samples[key] = sample
    if set(samples) != {answer_of(row.row) for row in rows}:
        missing = [row.item.id for row in rows if answer_of(row.row) not in samples]
        message = f"the log has {len(samples)} samples, the rows {len(rows)}"
        message += f"; without a sample: {join_names(missing)}" if missing else ""
        return CheckOutcome("FAIL", message, repairable=False)
    score = _parse_parameters(evidence).score
    wrong = [
        {"item": row.item.id, "differs": ", ".join(texts)}
        for row in rows
        if (texts := list(_differing(row, samples[answer_of(row.row)], score)))
    ]
    names = join_names(value["item"] for value in wrong)
    message = f"{plural(len(wrong), 'row is', 'rows are')} not what the log says: {names}"
    return unless(wrong, message, f"all {len(rows)} rows equal the log", repairable=False)


def _differing(value: BenchmarkSample, sample: LoggedSample, score: str) -> Iterator[str]:
    row, claimed = value.row, {scorer_value.name: scorer_value.value for scorer_value in sample.scores}
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
def _check_task(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare task, arguments, environment and requests with what was granted, and with the baseline's."""
    arguments, log, stated = _parse_parameters(evidence), log_of(evidence), _read_library_facts(evidence)
    args = arguments.args if isinstance(arguments, InspectParameters) else {}
    faults: list[str] = []
    named = arguments.task.rpartition("/")[2]
    if log.task.rpartition("/")[2] != named:
        faults.append(f"the log is that of the task {log.task!r}")
    if set(log.arguments) != set(args):
        faults.append(f"the task was given {join_names(sorted(log.arguments)) or 'no arguments'}")
    faults += [
        f"the argument '{name}' was {log.arguments.get(name)!r}"
        for name, value in args.items()
        if "{items}" not in str(value) and log.arguments.get(name) != value
    ]
    if faults:
        return CheckOutcome("FAIL", "; ".join(faults), float(len(faults)), repairable=False)
    long = [
        row.item.id
        for row in _rows(evidence)
        if any(c.max_new_tokens > arguments.max_new_tokens for c in row.row.calls)
    ]
    if long:
        return CheckOutcome("FAIL", f"more tokens than granted were asked for at {join_names(long)}", repairable=False)
    if arguments.temperature is not None and (lacking := _count_dropped_draws(_rows(evidence))):
        message = f"of {lacking} prompts the model gave answers that are in no row, or one answer twice"
        return CheckOutcome("FAIL", message, float(lacking), repairable=False)
    before = evidence.baseline_manifest
    if before is not None and (theirs := before.facts.get("library", {}).get("environment")) != stated["environment"]:
        message = f"the baseline ran in the environment {theirs}, this stage in {stated['environment']}"
        return CheckOutcome("FAIL", message, repairable=False)
    return CheckOutcome(
        "PASS", f"task {arguments.task} with {stated.get('name')} {stated.get('version')}, as granted", 0.0
    )


def _count_dropped_draws(rows: Sequence[BenchmarkSample]) -> int:
    """Return for how many prompts the numbers of the draws are not 0, 1, and so on: others were drawn and left out."""
    draws: dict[str | None, list[int]] = defaultdict(list)
    for row in rows:
        for call in row.row.calls:
            draws[call.prompt_digest].append(call.draw)
    return sum(sorted(numbers) != list(range(len(numbers))) for numbers in draws.values())


@CHECKS.add(
    "benchmark.items",
    "The model was asked the items, and their answers were the targets",
    source="a task with other data",
)
def _check_items(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Look for each item's prompt in the request, and compare the target with the item's answers.

    A task may write the question in its own words, or the target in another form: that is a warning, with the items.
    """
    rows = _rows(evidence)
    elsewhere = list(dict.fromkeys(row.item.id for row in rows if not _contains_prompt(row)))
    targets = list(
        dict.fromkeys(row.item.id for row in rows if not all(_is_due(text, row.item) for text in row.row.target))
    )
    parts = [
        f"{len(item_ids)} {what}, for example '{item_ids[0]}'"
        for item_ids, what in (
            (elsewhere, "items are not asked in their own words"),
            (targets, "targets are not the items' answers"),
        )
        if item_ids
    ]
    if parts:
        visible = tuple({"item": item} for item in dict.fromkeys((*elsewhere, *targets)))
        return CheckOutcome("WARN", "; ".join(parts), float(len(elsewhere) + len(targets)), visible)
    return CheckOutcome("PASS", f"all {len(rows)} items were asked verbatim, their answers were the targets", 0.0)


def _contains_prompt(value: BenchmarkSample) -> bool:
    return any(value.item.prompt.strip() in message.content for call in value.row.calls for message in call.messages)


def _is_due(target: str, item: Item) -> bool:
    """Return whether a target is an answer of the item, or its last word, as after the ``####`` of GSM8K."""
    return any(text == target or text.endswith((f" {target}", f"\n{target}")) for text in targets_of(item))


@CHECKS.add(SCORES, "The scores follow from the answers", source="a benchmark's number, believed without recomputation")
def _check_scores(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Carry the registered scorer out again where it is one of the library's plain ones; else it stays a claim."""
    rows, log = _rows(evidence), log_of(evidence)
    results = {answer_of(row.row): _again(log, evidence, row) for row in rows}
    wrong = [
        {"item": row.item.id, "output": row.text, "target": ", ".join(row.row.target), "claimed": row.passed}
        for row in rows
        if results[answer_of(row.row)] not in (None, row.passed)
    ]
    if wrong:
        names = join_names(str(value["item"]) for value in wrong)
        message = f"{plural(len(wrong), 'score does', 'scores do')} not follow from the answers: {names}"
        return CheckOutcome("FAIL", message, float(len(wrong)), tuple(wrong), repairable=False)
    claims = sum(value is None for value in results.values())
    if claims:
        message = f"{claims} of {len(rows)} scores are the claim of the task's scorer: nothing here computes them again"
        return CheckOutcome("WARN", message, float(claims))
    return CheckOutcome("PASS", f"all {len(rows)} scores follow from answer and target", 0.0)


@CHECKS.add(
    "benchmark.scorer",
    "The task's scorer refuses wrong answers made from its targets",
    source="scorers that look for the target anywhere in an answer: naming every option passes",
    blocking=False,
)
def _check_scorer(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Attack the registered scorer as verifiers are attacked, where it can be carried out here without the library."""
    log, rows = log_of(evidence), [row for row in _rows(evidence) if row.row.sample == 0][:MOST_ATTACKED]
    scorer, options = log.scorers.get(_parse_parameters(evidence).score, ("", {}))
    known = {row.item.id: row.row.target for row in rows}

    def judge(requests: Sequence[tuple[Item, str]]) -> list[bool]:
        return [scored_again(scorer, options, text, known[item.id]) is True for item, text in requests]

    rights = [(row.item, text) for row in rows for text in row.row.target[:1]]
    texts = [(item, text) for (item, text), passed in zip(rights, judge(rights), strict=True) if passed]
    if len({text for _, text in texts}) < 2:
        return CheckOutcome("WARN", f"'{scorer}' cannot be carried out here: it was not attacked with wrong answers")
    others = {text: texts[place - 1][1] for place, (_, text) in enumerate(texts) if texts[place - 1][1] != text}
    targets = [ProbeTarget(item, text, others.get(text, "")) for item, text in texts]
    outcome = run_attacks(scorer, judge, [attack for attack in ATTACKS if attack.fails], targets)
    if outcome is None:
        return CheckOutcome("PASS", f"'{scorer}' refuses every attack on {len(targets)} items", 0.0)
    return CheckOutcome("WARN", f"{outcome.detail}; it is the benchmark's own, so read its answers", outcome.figure)


def _again(log: Log, evidence: Evidence, value: BenchmarkSample) -> bool | None:
    # A solver may have replaced the answer by its own text.
    if value.text not in {call.output for call in value.row.calls}:
        return None
    scorer, options = log.scorers.get(_parse_parameters(evidence).score, ("", {}))
    return scored_again(scorer, options, value.text, value.row.target)


def _read_library_facts(evidence: Evidence) -> dict[str, Any]:
    library = manifest_of(evidence).facts.get("library")
    if not isinstance(library, dict) or not isinstance(library.get("environment"), str):
        raise EvidenceMissing("the manifest does not say where the task ran")
    return library
