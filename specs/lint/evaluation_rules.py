"""Rules on gap, drift, paired tests and the labelled sample, on worked examples and judges; notes on a spec."""

from __future__ import annotations

from collections.abc import Iterator

from specs.lint.arm_rules import find_control
from specs.session.design import kind_read
from specs.session.session_spec import SessionSpec
from specs.stages.base.stage import TASKS
from specs.stages.registry import Stage, kind_of, names_where, outputs_of
from specs.system import plugins
from specs.system.confinement import task_file
from specs.system.confinement.verifier_process import GROUP, describe_task
from specs.system.yaml.problems import LintProblem, Loc, suggest

SUCCESS = (
    *("accuracy", "nats_per_token", "nats_per_byte", "choice_accuracy", "choice_accuracy_per_token"),
    *("choice_accuracy_per_byte", "win_rate", "win_rate_controlled", "conversation_pass_rate", "turn_pass_rate"),
    *("accuracy_at_k", "lowest_kind_pass_rate", "benchmark_accuracy", "lm_eval_accuracy"),
)
"""Metrics that say how well a model does its items. The others say whether an evaluation is sound."""


def lint_evaluation(spec: SessionSpec) -> Iterator[LintProblem]:
    """The named stages exist, are of a kind that can show it, and come where they can still change something."""
    if spec.evaluation is None:
        return
    yield from _gap(spec)
    for number, drift in enumerate(spec.evaluation.drift):
        yield from _differ_in_model_only(spec, ("evaluation", "drift", number), drift.before, drift.after)
    yield from _check_paired_tests(spec)
    labelled = spec.evaluation.labelled
    if labelled is not None and labelled not in spec.data:
        hint = suggest(labelled, spec.data, "data files")
        yield LintProblem(("evaluation", "labelled"), f"unknown data file '{labelled}'", hint)
    for number, name in enumerate(spec.evaluation.not_evaluated):
        if name not in (names := [stage.name for stage in spec.stages]):
            hint = suggest(name, names, "stages")
            yield LintProblem(("evaluation", "not_evaluated", number), f"unknown stage '{name}'", hint)
    pairs = [stage.name for stage in spec.stages if "preferences" in outputs_of(stage.kind, stage.parameters)]
    pairs += [name for name, data_file in spec.data.items() if data_file.row_kind == "preferences"]
    for number, name in enumerate(spec.evaluation.not_judged):
        if name not in pairs:
            hint = suggest(name, pairs, "what makes or holds pairs")
            yield LintProblem(("evaluation", "not_judged", number), f"'{name}' makes or holds no pairs", hint)


def lint_example(spec: SessionSpec, _: int, stage: Stage) -> Iterator[LintProblem]:
    """Sampling shows a worked example only where the task has one, which is true of forms and not of questions."""
    if getattr(stage.parameters, "worked_example", False) and not _shows(spec.task):
        message = f"task {task_file.path_of(spec.task)} has no worked example"
        yield LintProblem(("parameters", "worked_example"), message, "worked_example: false")


def lint_judge(spec: SessionSpec, _: int, stage: Stage) -> Iterator[LintProblem]:
    """A judge that is declared base is not asked through a chat template."""
    if getattr(stage.parameters, "form", "") == "chat" and kind_read(spec, stage) == "base":
        message = f"form is chat, and the judge '{stage.inputs.get('model', 'model')}' is a base model"
        yield LintProblem(("parameters", "form"), message, "write form: completion, or name an instruct model")


def lint_compared_answers(spec: SessionSpec, _: int, stage: Stage) -> Iterator[LintProblem]:
    """A judge of pairs compares stages that answer each item once."""
    stages = {stage.name: stage for stage in spec.stages}
    for role in ("reference", "candidate"):
        owner = stages.get(stage.inputs.get(role, "").partition(".")[0])
        if owner is not None and (answers := getattr(owner.parameters, "answers_per_item", 1)) > 1:
            message = f"'{owner.name}' answers each item {answers} times, and a judge compares one answer with one"
            yield LintProblem(("inputs", role), message, "name a stage that answers each item once")


def notes(spec: SessionSpec) -> Iterator[str]:
    """Yield what is allowed and seldom meant, one line each."""
    analysis = spec.analysis
    if find_control(spec.stage(analysis.treatment)) and not analysis.controls:
        yield (
            f"{analysis.treatment}: no control is registered, so a gain that needs no memory counts as one; controls "
            "are both arms once more with history: shuffled or none, named under analysis.controls"
        )
    order = [stage.name for stage in spec.stages]
    looks = [(arm.stage, "an arm on the held-out split") for arm in analysis.arms]
    looks += [(analysis.transfer.after, "the treatment's model on the transfer split")] if analysis.transfer else []
    for name, what in looks:
        between = spec.stages[order.index(name) : order.index(analysis.treatment)]
        if later := next((stage.name for stage in between if _trains(stage)), None):
            yield (
                f"{name}: evaluates {what} before '{later}' trains, so that its result is known while the training can "
                "still be changed; evaluate after all training"
            )
    for stage in spec.stages:
        if kind_of(stage).open_ended and not stage.parameters.stops and kind_read(spec, stage) == "base":
            yield (
                f"{stage.name}: a base model writes until its end token or {stage.parameters.max_new_tokens} tokens, "
                f'and no stops are given; what ends an answer is written stops: ["\\n\\n"] or the end mark it learned'
            )


def _shows(task: str) -> bool:
    if task_file.is_file(task):
        # A file that could not be used has been reported, and has no digest.
        return "@" not in task or "worked_example" in describe_task(task).parts
    if task in TASKS:
        return task == "format_instructions"
    return plugins.find(GROUP, task) is not None and "worked_example" in describe_task(task).parts


def _gap(spec: SessionSpec) -> Iterator[LintProblem]:
    gap = spec.evaluation.gap if spec.evaluation else None
    if gap is None:
        return
    order = [stage.name for stage in spec.stages]
    training = next((place for place, stage in enumerate(spec.stages) if _trains(stage)), len(order))
    named: list[tuple[Loc, str]] = [(("evaluation", "gap", "base", n), name) for n, name in enumerate(gap.base)]
    if gap.ceiling is not None:
        named.append((("evaluation", "gap", "ceiling"), gap.ceiling))
    for loc, name in named:
        yield from _named(spec, loc, name, "arm")
        if name in order and order.index(name) > training:
            message = f"'{name}' comes after '{order[training]}', which already trains"
            yield LintProblem(loc, message, "the gap is shown before anything is trained")
        if name in order and loc[2] == "base" and spec.stage(name).inputs.get("model") != "model":
            read = spec.stage(name).inputs.get("model")
            yield LintProblem(loc, f"'{name}' evaluates '{read}', not the untrained model", "read model")
    known = {spec.stage(name).inputs.get("items") for _, name in named if name in order}
    if len(known) > 1:
        message = f"the stages of the gap read different items: {', '.join(sorted(map(str, known)))}"
        yield LintProblem(("evaluation", "gap"), message, "all must read the same items")


def lint_heldout(spec: SessionSpec) -> Iterator[LintProblem]:
    """A trained model's success on the held-out split decides nothing before all training is over.

    A gate that asks for it is asked again until the split agrees, and what is trained after it was chosen on the split.
    The registered comparison may decide, and so may what says of the untrained model whether training is worth it.
    """
    names = [stage.name for stage in spec.stages]
    trains = [place for place, stage in enumerate(spec.stages) if _trains(stage)]
    hint = "test it on a data file, or at the registered comparison, after all training"
    for place, stage in enumerate(spec.stages):
        later = next((names[other] for other in trains if other > place), None)
        registered = stage.name == spec.analysis.treatment
        if later is None or registered or not spec.reads_split(stage) or not _of_trained(spec, stage):
            continue
        message = f"on the held-out split decides before '{later}' trains"
        for number, criterion in enumerate(stage.gate.criteria):
            if criterion.metric in SUCCESS:
                yield LintProblem(("stages", place, "gate", "criteria", number), f"'{criterion}' {message}", hint)
        for number, test in enumerate(spec.evaluation.paired if spec.evaluation else ()):
            if test.decides and test.after == stage.name:
                loc: Loc = ("evaluation", "paired", number, "decides")
                yield LintProblem(loc, f"the test of '{test.after}' {message}", f"{hint}; or write decides: false")


def lint_looks(spec: SessionSpec) -> Iterator[LintProblem]:
    """Each evaluation of a trained model on the held-out split belongs to a registered comparison.

    One that belongs to none is another look at the split, and nothing says what its outcome counts for.
    """
    plan = spec.evaluation
    tests = (*plan.paired, *plan.drift) if plan else ()
    named = {*spec.analysis.list_compared_stages(), *(name for test in tests for name in (test.before, test.after))}
    looks = {
        stage.name: place
        for place, stage in enumerate(spec.stages)
        if kind_of(stage).arm is not None and spec.reads_split(stage) and _of_trained(spec, stage)
    }
    # Where the treatment is no such evaluation, the rules on arms report that first.
    for name in looks if spec.analysis.treatment in looks else ():
        if name not in named:
            message = f"'{name}' evaluates a trained model on the held-out split, and no registered test names it"
            hint = "register its test under evaluation.paired, or have it read a data file"
            yield LintProblem(("stages", looks[name], "inputs", "items"), message, hint)


def _trains(stage: Stage) -> bool:
    return kind_of(stage).makes_weights(stage.parameters)


def _of_trained(spec: SessionSpec, stage: Stage) -> bool:
    """Return whether anything that a stage reads was made with a model that the session trained."""
    owners = {reference.partition(".")[0] for reference in stage.inputs.values()}
    # Only stages before it, so that a circle, which is reported elsewhere, has an end.
    before = spec.stages[: spec.stages.index(stage)]
    return any(_trains(stage) or _of_trained(spec, stage) for stage in before if stage.name in owners)


def _check_paired_tests(spec: SessionSpec) -> Iterator[LintProblem]:
    for number, test in enumerate(spec.evaluation.paired if spec.evaluation else ()):
        loc: Loc = ("evaluation", "paired", number)
        problems = list(_differ_in_model_only(spec, loc, test.before, test.after))
        yield from problems
        if not problems and test.outcome not in (able := _list_outcomes(spec.stage(test.after))):
            message = f"rows of '{test.after}' have no {test.outcome} outcome"
            yield LintProblem((*loc, "outcome"), message, f"they have: {', '.join(able)}")


def _list_outcomes(stage: Stage) -> list[str]:
    """Return what rows give each item: of several answers a share, of one whether it is right."""
    kind = kind_of(stage)
    if not hasattr(stage.parameters, "answers_per_item"):
        return list(kind.outcomes)
    return ["continuous" if stage.parameters.answers_per_item > 1 else "binary"]


def _differ_in_model_only(spec: SessionSpec, loc: Loc, first: str, last: str) -> Iterator[LintProblem]:
    """Two stages are there, in order, and do the same to the same items."""
    order = [stage.name for stage in spec.stages]
    before = list(_named(spec, (*loc, "before"), first, "outcomes"))
    after = list(_named(spec, (*loc, "after"), last, "outcomes"))
    yield from (*before, *after)
    if not before and not after:
        if order.index(first) >= order.index(last):
            yield LintProblem(loc, f"'{last}' does not come after '{first}'", "swap them")
            return
        stage, other = spec.stage(first), spec.stage(last)
        for what, ours, theirs in (
            ("kinds", stage.kind, other.kind),
            ("items", stage.inputs.get("items"), other.inputs.get("items")),
            ("parameters", stage.parameters, other.parameters),
        ):
            if ours != theirs:
                message = f"'{first}' and '{last}' have different {what}"
                yield LintProblem(loc, message, "only the model may differ between them")


def _named(spec: SessionSpec, loc: Loc, name: str, trait: str) -> Iterator[LintProblem]:
    stage = next((stage for stage in spec.stages if stage.name == name), None)
    if stage is None:
        fitting = [stage.name for stage in spec.stages if getattr(kind_of(stage), trait)]
        yield LintProblem(loc, f"unknown stage '{name}'", suggest(name, fitting, "stages"))
    elif not getattr(kind_of(stage), trait):
        yield LintProblem(loc, f"'{name}' is of kind {stage.kind}", f"fitting are {', '.join(names_where(trait))}")
