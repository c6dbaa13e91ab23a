"""Did the training train: all of the data seen, every step done, loss on the right tokens, weights moved?

No row or manifest says how long a step took, or from which step the saved weights are.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

from reviews.checks.definition import CheckOutcome, CheckRegistry, manifest_of
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from reviews.stages.finetuning.measure import steps_of, stop_of
from reviews.stages.finetuning.weights import LEAST_SHARE, adapter_parameters, course_of, far_steps
from specs.stages.base.artifacts import Example, Preference
from specs.stages.base.metric import MetricSet
from specs.stages.base.stage import Kind
from specs.system.errors import EvidenceMissing
from training.rules.finetuning.losses import most_difference
from training.rules.finetuning.validation_split import ValidationSplit, divide, divide_examples

TRAINED: tuple[Kind, ...] = ("sft", "dpo")
ONLINE: tuple[Kind, ...] = ("grpo", "sdpo", "composer")
"""Trained on what the model wrote itself."""
CHECKS = CheckRegistry(TRAINED)


def require_parameter(evidence: Evidence, name: str) -> Any:
    """Return a granted parameter; errors as :meth:`Evidence.ordered`."""
    if name not in evidence.parameters:
        raise EvidenceMissing("the order of the attempt is not on record")
    return evidence.parameters[name]


def fact(evidence: Evidence, name: str) -> float:
    """Return a number that the manifest states; errors as :func:`manifest_of`, and without such a number."""
    value = manifest_of(evidence).facts.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EvidenceMissing(f"the manifest has no number '{name}'")
    return value


@CHECKS.add("training.data", "All of the granted data was used", kinds=("sft",), source="silently smaller data set")
def _check_data(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Count again what should have been trained on: every example not kept out, or the granted number of each kind."""
    expected = _count_expected_examples(evidence)
    used = manifest_of(evidence).facts.get("examples_by_kind")
    total = sum(expected.values())
    replicas = _replicas(evidence)
    if replicas > 1 and isinstance(used, dict) and total % replicas:
        # Shards have the same number of examples; which few belong to none, the seed says.
        fits = all(used.get(kind, 0) <= count for kind, count in expected.items()) and not used.keys() - expected.keys()
        total = count_shared_rows(evidence, total)
        if fits and sum(used.values()) == total:
            return CheckOutcome("PASS", f"trained on {total} granted examples, the rest fills no shard", float(total))
    if used != expected:
        return CheckOutcome("FAIL", f"trained on {used}, the granted data gives {expected}", float(total))
    return CheckOutcome("PASS", f"trained on all {total} granted examples", float(total))


@CHECKS.add("training.length", "Nothing was cut or left out", source="cut-off answers trained on; rows dropped")
def _check_length(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Count sequences longer than ``max_length``: their ends were cut, or nothing of the response was left."""
    cut, dropped = fact(evidence, "cut"), fact(evidence, "dropped")
    most = evidence.parameters.get("max_length")
    if dropped:
        return CheckOutcome(
            "FAIL", f"{dropped:.0f} prompts alone fill {most} tokens: the trainer left them out", dropped
        )
    if cut:
        return CheckOutcome(
            "WARN", f"{cut:.0f} sequences are longer than {most} tokens: trained on without their end", cut
        )
    return CheckOutcome("PASS", f"every sequence fits into {most} tokens", 0.0)


def split_pairs(evidence: Evidence) -> tuple[tuple[int, ...], tuple[int, ...], tuple[Preference, ...]]:
    """Return (lines to train on, lines to keep out, all pairs), divided again as the granted parameters say.

    Raises:
        EvidenceMissing: the pairs are absent or unreadable, or cannot be divided by group.
    """
    pairs = read_rows(evidence.inputs.get("preferences"), Preference, "preferences")
    try:
        split = divide(
            list(pairs), require_parameter(evidence, "validation_share"), require_parameter(evidence, "seed")
        )
    except ValueError as error:
        raise EvidenceMissing(str(error), where="preferences") from error
    return split.train, split.validation, pairs


def _replicas(evidence: Evidence) -> int:
    """Return how many processes share the data."""
    arguments = evidence.parameters.get("distributed")
    return 1 if arguments is None else int(arguments["replicas"])


def count_shared_rows(evidence: Evidence, rows: int) -> int:
    """Return how many of so many rows are trained on: where replicas share them, the few that fill no shard are not."""
    return rows - rows % _replicas(evidence)


def _sequences(evidence: Evidence) -> tuple[int, int]:
    """Return how many rows an epoch's batches are made of, and how many sequences those hold; of all replicas."""
    if evidence.stage.kind == "dpo":
        pairs = count_shared_rows(evidence, len(split_pairs(evidence)[0]))
        return (2 * pairs if evidence.parameters.get("loss") == "kto" else pairs), 2 * pairs
    examples = count_shared_rows(evidence, sum(_count_expected_examples(evidence).values()))
    if evidence.parameters.get("packing"):
        return int(fact(evidence, "trained_rows")), examples
    return examples, examples


def examples_split(evidence: Evidence) -> tuple[ValidationSplit, tuple[Example, ...]]:
    """Return the granted examples, and how the granted parameters divide them; errors as :func:`read_rows`."""
    every = read_rows(evidence.inputs.get("examples"), Example, "training examples")
    share = evidence.parameters.get("validation_share", 0.0)
    return divide_examples(every, share, require_parameter(evidence, "seed")), every


def _count_expected_examples(evidence: Evidence) -> dict[str, int]:
    limit = evidence.parameters.get("max_examples_per_kind")
    split, every = examples_split(evidence)
    available = Counter(every[place].kind for place in split.train)
    return {kind: min(count, limit or count) for kind, count in sorted(available.items())}


@CHECKS.add("training.steps", "Every planned step was done exactly once", source="early stop; small data begun again")
def _check_steps(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the logged steps with what data, batch size and epochs imply, and with where a registered rule ends."""
    rows, effective, stop = steps_of(evidence), manifest_of(evidence).effective, stop_of(evidence)
    planned, done = effective.get("planned_steps"), effective.get("steps")
    if not len(rows) == done == (planned if stop is None else stop.last):
        rule = (
            f"{planned} steps were planned" if stop is None else f"the registered rule ends it after step {stop.last}"
        )
        return CheckOutcome("FAIL", f"{rule}, {done} done, {len(rows)} have a row", float(len(rows)))
    rows_of_epoch, sequences = _sequences(evidence)
    size, epochs = require_parameter(evidence, "batch_size"), require_parameter(evidence, "epochs")
    at_once, replicas = require_parameter(evidence, "gradient_accumulation"), _replicas(evidence)
    rows_of_epoch //= replicas
    batches = math.ceil(rows_of_epoch / size)
    of_epoch = math.ceil(batches / at_once)
    if planned != of_epoch * epochs:
        what = f"{rows_of_epoch} rows in batches of {size}, {epochs} times, take {of_epoch * epochs}"
        return CheckOutcome("FAIL", f"{planned} steps were planned; {what}", float(len(rows)))
    seen_value, passes = fact(evidence, "sequences"), fact(evidence, "epochs_done")
    whole, rest = divmod(len(rows), of_epoch)
    expected = whole * sequences + Fraction(rest * at_once * size * sequences, rows_of_epoch or 1)
    # Of replicas some may be lost, which is judged in replicas.samples; packed rows hold different numbers of them.
    at_most = replicas > 1 or (rest and evidence.parameters.get("packing"))
    wrong = seen_value > (whole + bool(rest)) * sequences if at_most else seen_value != expected
    if wrong or not math.isclose(passes, whole + rest * at_once / batches, abs_tol=1e-6):
        what = f"{sequences} of them in {len(rows)} of {of_epoch} steps a pass are {float(expected):g}"
        return CheckOutcome(
            "FAIL", f"{seen_value:.0f} sequences were trained on in {passes:g} passes; {what}", seen_value
        )
    if stop is not None and stop.last < stop.planned:
        message = f"{done} of {planned} steps were done and logged, as the registered rule says"
        return CheckOutcome("PASS", message, float(len(rows)))
    return CheckOutcome("PASS", f"all {planned} steps that the data imply were done and logged", float(len(rows)))


@CHECKS.add("training.mask", "Loss is on the response only", source="loss on prompt tokens")
def _check_mask(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Look at what the job saw in every batch, and at its sample of sequences token by token."""
    masked = fact(evidence, "masked_tokens")
    carried = sum(row.tokens for row in steps_of(evidence))
    proof = _proof(evidence)
    sample: list[dict[str, Any]] = proof["sample"]
    if masked == 0:
        return CheckOutcome("FAIL", "no token was masked: the prompts carried loss too", 0.0)
    if carried == 0:
        return CheckOutcome("FAIL", "no token carried loss", 0.0)
    if proof["violations"]:
        message = (
            f"{proof['violations']} of {proof['rows']} sequences: a prompt token carried loss, or a response token not"
        )
        return CheckOutcome("FAIL", message, float(proof["violations"]), tuple(proof["wrong"]))
    unmasked_places = [place for place, value in enumerate(sample) if not _is_masked(value)]
    if unmasked_places:
        return CheckOutcome(
            "FAIL", f"sequence {unmasked_places[0]} of the sample has loss on its prompt", float(len(unmasked_places))
        )
    share = carried / (carried + masked)
    detail = f"{carried} response tokens carried loss, {masked:.0f} prompt tokens did not"
    if proof["merged"]:
        return CheckOutcome(
            "WARN", f"{detail}; in {proof['merged']} examples the end of the prompt merges with the response", share
        )
    return CheckOutcome("PASS", f"{detail}, in {proof['rows']} sequences", share)


def _proof(evidence: Evidence) -> dict[str, Any]:
    proof = manifest_of(evidence).facts.get("mask")
    names = ("violations", "rows", "merged")
    if not isinstance(proof, dict) or not all(isinstance(proof.get(name), int) for name in names):
        raise EvidenceMissing("the manifest does not say how the batches were masked")
    if not isinstance(proof.get("wrong"), list) or not isinstance(proof.get("sample"), list) or not proof["sample"]:
        raise EvidenceMissing("the manifest holds no sample of masked sequences")
    return proof


def _is_masked(value: dict[str, Any]) -> bool:
    """Return whether no token of the prompt has a label and every later one has its own."""
    ids, labels, prompt = value.get("ids"), value.get("labels"), value.get("prompt_tokens")
    if not isinstance(ids, list) or not isinstance(labels, list) or not isinstance(prompt, int) or prompt < 1:
        return False
    return len(ids) == len(labels) and set(labels[:prompt]) == {-100} and labels[prompt:] == ids[prompt:]


@CHECKS.add(
    "training.objective",
    "The loss is the granted loss over the responses",
    source="labels masked, but the loss still included the prompts",
    threshold="<= 0.0001 in float32, <= 0.02 in bfloat16",
)
def _check_objective(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the trainer's loss with the closed form over the responses of the same batch."""
    difference = fact(evidence, "loss_difference")
    most = most_difference(str(manifest_of(evidence).effective.get("precision")))
    detail = f"the trainer's loss differs by {difference:.2g} from the closed form over the response tokens"
    return CheckOutcome("PASS" if difference <= most else "FAIL", detail, difference)


@CHECKS.add("training.batches", "Batches differ", source="one batch memorised")
def _check_batches(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    count, distinct = fact(evidence, "batches"), fact(evidence, "distinct_batches")
    epochs = evidence.parameters.get("epochs", 1)
    if count > 1 and distinct < count / epochs:
        return CheckOutcome(
            "FAIL", f"{distinct:.0f} of {count:.0f} batches are distinct: the same rows came again and again", distinct
        )
    return CheckOutcome("PASS", f"{distinct:.0f} distinct batches of {count:.0f}", distinct)


@CHECKS.add(
    "training.moved",
    "The granted weights moved",
    kinds=(*TRAINED, *ONLINE),
    source="adapters on two modules instead of seven; checkpoint not as claimed; an optimiser that is dead",
    threshold=f">= {LEAST_SHARE:g} of what the learning rates make, and no weight beyond what they can at most",
    reads_weights=True,
)
def _check_weight_movement(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    manifest = manifest_of(evidence)
    method = evidence.parameters.get("method", "full")
    share = manifest.effective.get("trained_share")
    if method == "full" and share != 1.0:
        return CheckOutcome("FAIL", f"{share} of the weights were trained, full fine-tuning was granted")
    what = "all weights were"
    if method != "full":
        trained = manifest.effective.get("trained_parameters")
        modules, rank = require_parameter(evidence, "target_modules"), require_parameter(evidence, "lora_rank")
        expected = adapter_parameters(evidence.outputs.get("checkpoint"), modules, rank)
        if trained != expected:
            message = f"{trained} parameters were trained; rank {rank} on {', '.join(modules)} makes {expected}"
            return CheckOutcome("FAIL", message)
        what = f"{expected} parameters of adapters were"
    course = course_of(evidence)
    if course is not None and not course.farthest <= course.most:
        message = f"a weight is {course.farthest:.3g} from where it began, the logged steps carry it {course.most:.3g}"
        return _too_far(evidence, f"{message} at most: the rows do not hold what changed the weights", course.farthest)
    if evidence.parameters.get("learning_rate") == 0:
        return CheckOutcome("NOT_APPLICABLE", "with a learning rate of 0 the weights should not move")
    if evidence.output_digests.get("checkpoint") is None:
        raise EvidenceMissing("no checkpoint was left")
    if evidence.output_digests["checkpoint"] == manifest.inputs.get("model"):
        return CheckOutcome("FAIL", "the checkpoint equals the starting checkpoint")
    if course is not None and course.changed == 0:
        return CheckOutcome("FAIL", "every weight equals its starting value: no update reached the checkpoint")
    detail = f"{what} trained and the checkpoint is a new one"
    if course is None or course.share is None:
        return CheckOutcome("PASS", detail, share)
    message = f"the tensor that moved farthest moved by {course.moved:.3g}, the logged rates make {course.expected:.3g}"
    if course.share < LEAST_SHARE:
        return CheckOutcome("FAIL", f"{message}: the optimiser did not run, or not at the granted rate", course.share)
    reach = f"a single weight by {course.farthest / course.most:.2g} of what they can at most"
    return CheckOutcome("PASS", f"{detail}; {message}, {reach}", share)


def _too_far(evidence: Evidence, message: str, figure: float, rows: tuple[dict[str, Any], ...] = ()) -> CheckOutcome:
    """Return FAIL, or WARN of an optimizer of which no exact bound is known."""
    kind = evidence.parameters.get("optimizer_kind", "adamw")
    if kind != "adamw":
        return CheckOutcome("WARN", f"{message}; of {kind} the bound is a rule of thumb", figure, rows)
    return CheckOutcome("FAIL", message, figure, rows, repairable=False)


@CHECKS.add(
    "training.path",
    "No row's step moved the weights farther than it can",
    kinds=(*TRAINED, *ONLINE),
    source="60 hidden steps between two logged ones, accepted four times of four",
    threshold="<= the most that Adam's step can move a weight at the logged rate",
)
def _check_path(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the single weights that consecutive rows state with what one step of Adam at the logged rates can do."""
    far, share = far_steps(evidence)
    if not far:
        return CheckOutcome("PASS", f"from row to row no weight moved by more than {share:.2g} of what it can", share)
    first = far[0]
    message = f"in {len(far)} steps a weight moved farther than the step can carry it, first in step {first.step}: "
    message += f"by {first.moved:.3g}, at most {first.most:.3g}"
    rows = tuple({"step": step.step, "moved": step.moved, "at_most": step.most} for step in far)
    return _too_far(evidence, f"{message}: something that no row states changed the weights", share, rows)
