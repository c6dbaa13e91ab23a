"""Rules on the arms of the analysis and on its controls."""

from __future__ import annotations

from collections.abc import Iterator

from specs.session.session_spec import SessionSpec
from specs.stages.registry import Stage, arm_of, kind_of, names_where
from specs.system.yaml.problems import LintProblem, Loc, suggest


def lint_arms(spec: SessionSpec) -> Iterator[LintProblem]:
    """Baseline and treatment measure different checkpoints on the same items in the same way, in order."""
    arms = ("baseline", spec.analysis.baseline), ("treatment", spec.analysis.treatment)
    for arm, name in arms:
        yield from _measures_heldout(spec, ("analysis", arm), arm, name)
    if all(name in _list_able(spec) for _, name in arms):
        names = [stage.name for stage in spec.stages]
        yield from _compare(spec, *(names.index(name) for _, name in arms))


def lint_more_arms(spec: SessionSpec) -> Iterator[LintProblem]:
    """Each further arm is measured as the treatment is, on other weights, before the treatment's gate judges all."""
    analysis, able, order = spec.analysis, _list_able(spec), [stage.name for stage in spec.stages]
    named, stages = {"baseline", "treatment"}, {analysis.baseline: "the baseline", analysis.treatment: "the treatment"}
    models = {spec.stage(name).inputs.get("model"): what for name, what in stages.items() if name in order}
    for number, arm in enumerate(analysis.arms):
        loc: Loc = ("analysis", "arms", number)
        if arm.name in named:
            yield LintProblem((*loc, "name"), f"'{arm.name}' names another arm too", "give each arm its own name")
        named.add(arm.name)
        yield from _measures_heldout(spec, (*loc, "stage"), "arm", arm.stage)
        if arm.stage in stages:
            message = f"'{arm.stage}' is {stages[arm.stage]} already"
            yield LintProblem((*loc, "stage"), message, "name another stage")
            continue
        stages[arm.stage] = f"the arm '{arm.name}'"
        if arm.stage not in able or analysis.treatment not in able:
            continue
        stage, treatment = spec.stage(arm.stage), spec.stage(analysis.treatment)
        place: Loc = ("stages", order.index(arm.stage))
        if stage.kind != treatment.kind:
            message = f"the arm '{stage.name}' is a stage of kind {stage.kind}, the treatment one of {treatment.kind}"
            yield LintProblem((*loc, "stage"), message, "all arms are of one kind")
            continue
        if order.index(stage.name) > order.index(treatment.name):
            message = f"'{stage.name}' comes after the treatment '{treatment.name}', whose gate judges all arms"
            yield LintProblem((*loc, "stage"), message, "move it before")
        yield from _differ(place, stage, treatment, "the treatment", "all arms are evaluated the same way")
        model = stage.inputs.get("model")
        if model in models:
            message = f"the arm '{arm.name}' evaluates '{model}', as {models[model]} does, so they cannot differ"
            yield LintProblem((*place, "inputs", "model"), message, "evaluate the arm's own checkpoint")
        models[model] = f"the arm '{arm.name}'"


def lint_transfer(spec: SessionSpec) -> Iterator[LintProblem]:
    """Both arms answer the transfer split once more, before the treatment's gate, and no other stage reads it."""
    analysis, order = spec.analysis, [stage.name for stage in spec.stages]
    if (transfer := analysis.transfer) is None:
        return
    loc: Loc = ("analysis", "transfer")
    pool = spec.heldout.pool
    if transfer.data not in spec.data or spec.data[transfer.data].row_kind not in (None, "items"):
        message = f"'{transfer.data}' is not a data file of items"
        yield LintProblem((*loc, "data"), message, suggest(transfer.data, spec.data, "data files"))
    elif pool is not None and transfer.data == pool.data:
        message = f"'{transfer.data}' is the pool that the held-out split was drawn from"
        yield LintProblem((*loc, "data"), message, "name a file with other items")
    reference = f"data.{transfer.data}"
    for index, stage in enumerate(spec.stages):
        if stage.name not in (transfer.before, transfer.after) and reference in stage.inputs.values():
            hint = "only the two stages of analysis.transfer may"
            yield LintProblem(("stages", index, "inputs"), "reads the transfer split", hint)
    for side, name, arm in (("before", transfer.before, "baseline"), ("after", transfer.after, "treatment")):
        if name not in order:
            yield LintProblem((*loc, side), f"unknown stage '{name}'", suggest(name, _list_able(spec), "stages"))
        elif getattr(analysis, arm) in _list_able(spec):
            yield from _answers_transfer(spec, spec.stage(name), spec.stage(getattr(analysis, arm)), arm, reference)


def _answers_transfer(spec: SessionSpec, stage: Stage, arm: Stage, what: str, reference: str) -> Iterator[LintProblem]:
    """Yield in what a stage of the transfer split differs from its arm, the items left out."""
    order = [stage.name for stage in spec.stages]
    place: Loc = ("stages", order.index(stage.name))
    if stage.kind != arm.kind:
        message = f"is of kind {stage.kind}, the {what} of {arm.kind}"
        yield LintProblem((*place, "kind"), message, "both splits are answered the same way")
        return
    if stage.inputs.get("items") != reference:
        message = f"reads '{stage.inputs.get('items')}', the transfer split is '{reference}'"
        yield LintProblem((*place, "inputs", "items"), message, f"read {reference}")
    if stage.inputs.get("model") != arm.inputs.get("model"):
        message = f"evaluates '{stage.inputs.get('model')}', the {what} '{arm.inputs.get('model')}'"
        yield LintProblem((*place, "inputs", "model"), message, f"evaluate the {what}'s model")
    if order.index(stage.name) > order.index(spec.analysis.treatment):
        message = f"comes after the treatment '{spec.analysis.treatment}', whose gate judges it"
        yield LintProblem((*place, "inputs", "items"), message, "move it before")
    yield from _differ(place, stage, arm, f"the {what}", "both splits are answered the same way")


_SIZE = "max_examples_per_kind"


def lint_curve(spec: SessionSpec) -> Iterator[LintProblem]:
    """The points of a learning curve are arms that were trained as the treatment was, on other numbers of examples."""
    analysis = spec.analysis
    if analysis.learning_curve is None:
        return
    stages, order = {arm.name: arm.stage for arm in analysis.arms}, [stage.name for stage in spec.stages]
    treatment = spec.trained_for(analysis.treatment)
    if treatment is None and analysis.treatment in _list_able(spec):
        message = f"the treatment '{analysis.treatment}' evaluates no checkpoint that a stage of the spec trains"
        yield LintProblem(("analysis", "learning_curve"), message, "remove the curve")
    for number, name in enumerate(analysis.learning_curve.arms):
        loc: Loc = ("analysis", "learning_curve", "arms", number)
        if name not in stages:
            yield LintProblem(loc, f"unknown arm '{name}'", suggest(name, list(stages), "arms of the analysis"))
            continue
        if stages[name] not in order or treatment is None:
            continue  # Reported as an arm that is not there, or a treatment that is not trained.
        stage = spec.trained_for(stages[name])
        if stage is None or stage.kind != treatment.kind:
            message = f"the arm '{name}' evaluates no checkpoint of a {treatment.kind} stage, as the treatment does"
            yield LintProblem(loc, message, "name arms of the same training on fewer examples")
            continue
        place: Loc = ("stages", order.index(stage.name))
        yield from _differ(place, stage, treatment, "the treatment's", "only the examples differ", (_SIZE,))
        data = kind_of(stage).trains
        for role in stage.inputs.keys() - {data}:
            if stage.inputs[role] != treatment.inputs.get(role):
                message = f"{role} is '{stage.inputs[role]}' here and '{treatment.inputs.get(role)}' at the treatment's"
                yield LintProblem((*place, "inputs", role), f"{message} '{treatment.name}'", "only the examples differ")
        sizes = [getattr(trained_stage.parameters, _SIZE, None) for trained_stage in (stage, treatment)]
        if stage.inputs[data] == treatment.inputs[data] and sizes[0] == sizes[1]:
            message = f"the arm '{name}' is trained on as many examples as the treatment"
            yield LintProblem(loc, message, f"lower its {_SIZE}, or give it fewer {data}")


def _list_able(spec: SessionSpec) -> list[str]:
    return [stage.name for stage in spec.stages if kind_of(stage).arm]


def _measures_heldout(spec: SessionSpec, loc: Loc, arm: str, name: str) -> Iterator[LintProblem]:
    """Yield why a stage cannot be an arm: it is not there, is of another kind, or reads other items."""
    names, able, kinds = [stage.name for stage in spec.stages], _list_able(spec), " or ".join(names_where("arm"))
    if name not in names:
        yield LintProblem(loc, f"unknown stage '{name}'", suggest(name, able, f"{kinds} stages"))
    elif name not in able:
        message = f"'{name}' is a stage of kind {spec.stage(name).kind}; an arm is an {kinds} stage"
        yield LintProblem(loc, message, f"{kinds} stages: {', '.join(able) or 'none'}")
    elif (reference := spec.stage(name).inputs.get("items", "heldout")) != "heldout":
        place: Loc = ("stages", names.index(name), "inputs", "items")
        yield LintProblem(place, f"the {arm} reads '{reference}', the analysis registers heldout", "read heldout")


def lint_controls(spec: SessionSpec) -> Iterator[LintProblem]:
    """A control is both arms once more, before the treatment is judged, with another history and nothing else."""
    if not spec.analysis.controls:
        return
    stages = {stage.name: stage for stage in spec.stages}
    first, last = stages.get(spec.analysis.baseline), stages.get(spec.analysis.treatment)
    if first is None or last is None or kind_of(first).arm is None or kind_of(last).arm is None:
        return  # Reported as an arm that is not one.
    if find_control(first) is None or find_control(last) is None:
        yield LintProblem(("analysis", "controls"), "the arms hold no conversations", "remove the controls")
        return
    order = [stage.name for stage in spec.stages]
    for number, control in enumerate(spec.analysis.controls):
        histories: dict[str, str] = {}
        for side, name, arm in (("before", control.before, first), ("after", control.after, last)):
            loc: Loc = ("analysis", "controls", number, side)
            stage = stages.get(name)
            if stage is None or find_control(stage) is None:
                able = [stage.name for stage in spec.stages if find_control(stage)]
                text = "unknown stage" if stage is None else f"a stage of kind {stage.kind} is not a control:"
                yield LintProblem(loc, f"{text} '{name}'", suggest(name, able, f"{first.kind} stages"))
                continue
            histories[name] = stage.parameters.history
            yield from _control(loc, stage, arm)
            if order.index(name) > order.index(last.name):
                message = f"'{name}' comes after the treatment '{last.name}', which it must judge"
                yield LintProblem(loc, message, "move it before")
        if len(set(histories.values())) > 1:
            message = "history is " + " and ".join(f"{history} at '{name}'" for name, history in histories.items())
            yield LintProblem(("analysis", "controls", number), message, "both sides of a control have the same")


def find_control(stage: Stage) -> tuple[str, str] | None:
    """Return the parameter that a control changes, and its value in an arm; None where the kind has no controls."""
    arm = kind_of(stage).arm
    return arm.control if arm else None


def _control(loc: Loc, stage: Stage, arm: Stage) -> Iterator[LintProblem]:
    """Yield where a control differs from its arm in more than the history, or not in that."""
    if stage.parameters.history == "whole":
        yield LintProblem(loc, f"'{stage.name}' shows the whole history", "a control has history: shuffled or none")
    for what in ("model", "items"):
        ours, theirs = stage.inputs.get(what), arm.inputs.get(what)
        if ours and theirs and ours != theirs:
            message = f"'{stage.name}' reads the {what} '{ours}', its arm '{arm.name}' reads '{theirs}'"
            yield LintProblem(loc, message, "only the history differs")
    ours = stage.parameters.model_copy(update={"history": arm.parameters.history})
    for name in type(ours).model_fields:
        if name != "seed" and getattr(ours, name) != getattr(arm.parameters, name):
            values = f"{getattr(ours, name)} at '{stage.name}' and {getattr(arm.parameters, name)} at its arm"
            yield LintProblem(loc, f"{name} is {values}", "only the history differs")


def _compare(spec: SessionSpec, baseline: int, treatment: int) -> Iterator[LintProblem]:
    first, second = spec.stages[baseline], spec.stages[treatment]
    if first.kind != second.kind:
        message = f"the baseline '{first.name}' is a stage of kind {first.kind}, the treatment one of {second.kind}"
        yield LintProblem(("analysis", "treatment"), message, "both arms are of one kind")
        return
    if baseline >= treatment:
        same = "are the same stage" if baseline == treatment else f"are in the wrong order: '{second.name}' runs first"
        yield LintProblem(("analysis", "treatment"), f"baseline and treatment {same}", "the baseline comes first")
        return
    yield from _metric(spec, second)
    yield from _differ(("stages", treatment), second, first, "the baseline", "both arms are evaluated the same way")
    model = second.inputs.get("model")
    if model is not None and model == first.inputs.get("model"):
        message = f"both arms evaluate '{model}', so they cannot differ"
        yield LintProblem(("stages", treatment, "inputs", "model"), message, "evaluate the trained checkpoint")


def _differ(
    loc: Loc, stage: Stage, other: Stage, what: str, hint: str, exempt: tuple[str, ...] = ()
) -> Iterator[LintProblem]:
    """Yield each parameter that a stage has otherwise than another."""
    for name in type(other.parameters).model_fields:
        ours, theirs = getattr(stage.parameters, name), getattr(other.parameters, name)
        if ours != theirs and name not in ("seed", *exempt):
            message = f"{name} is {ours} here and {theirs} at {what} '{other.name}'"
            yield LintProblem((*loc, "parameters", name), message, hint)


def _metric(spec: SessionSpec, arm: Stage) -> Iterator[LintProblem]:
    """The registered metric is that of the arms, and the arms measure the task, not a control."""
    metric, primary_metric = arm_of(arm).metric, spec.analysis.primary_metric
    if primary_metric != metric:
        message = f"primary_metric is {primary_metric}, the arms are {arm.kind} stages"
        yield LintProblem(("analysis", "primary_metric"), message, f"write primary_metric: {metric}")
    answers = getattr(arm.parameters, "answers_per_item", 1)
    wanted = "sign_flip" if answers > 1 else "exact_mcnemar"
    if spec.analysis.test != wanted:
        times = f"{answers} times" if answers > 1 else "once"
        message = f"test is {spec.analysis.test}, and the arms answer each item {times}"
        yield LintProblem(("analysis", "test"), message, f"write test: {wanted}")
    alike = spec.stage(spec.analysis.baseline).parameters == arm.parameters  # Otherwise reported as a difference.
    if find_control(arm) and arm.parameters.history != "whole" and alike:
        loc: Loc = ("stages", [stage.name for stage in spec.stages].index(arm.name), "parameters", "history")
        message = f"history is {arm.parameters.history}: an arm that is not shown its conversation is a control"
        yield LintProblem(loc, message, "write history: whole, or name the stage under analysis.controls")
