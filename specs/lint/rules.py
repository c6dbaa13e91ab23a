"""Rules that need more than one value: what the schema cannot say. Pure functions of a parsed spec."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from specs.lint.acceptance_rules import lint_acceptance
from specs.lint.arm_rules import lint_arms, lint_controls, lint_curve, lint_more_arms, lint_transfer
from specs.lint.code_rules import lint_code, lint_witness
from specs.lint.criterion_rules import lint_criteria
from specs.lint.evaluation_rules import (
    lint_compared_answers,
    lint_evaluation,
    lint_example,
    lint_heldout,
    lint_judge,
    lint_looks,
)
from specs.lint.party_rules import lint_builder, lint_parties, lint_reviewer
from specs.lint.pilot_rules import lint_pilot
from specs.lint.range_rules import lint_choices, lint_ranges
from specs.lint.stage_rules import (
    lint_constitution_claims,
    lint_curated,
    lint_inputs,
    lint_name,
    lint_samples,
    lint_trained,
)
from specs.session.constitution import Constitution, Principle
from specs.session.operations import LAUNCHERS, attempt_usd, held_hours
from specs.session.session_spec import SessionSpec
from specs.stages.base.stage import TASKS
from specs.stages.registry import Stage, kind_of
from specs.system import plugins
from specs.system.confinement.task_file import is_file
from specs.system.yaml.problems import LintProblem, Loc, suggest


def lint(spec: SessionSpec) -> list[LintProblem]:
    """Return every rule the spec breaks; an empty list means it can be registered."""
    lint_problems = [
        _locate_problem(spec, index, problem)
        for index, stage in enumerate(spec.stages)
        for rule in _OF_STAGES
        for problem in rule(spec, index, stage)
    ]
    return [*lint_problems, *(problem for rule in _OF_SESSIONS for problem in rule(spec))]


def _lint_data(spec: SessionSpec) -> Iterator[LintProblem]:
    """Data files are not the held-out split under another name."""
    for name, data in spec.data.items():
        if name == "heldout":
            yield LintProblem(("data", name), "'heldout' is reserved for the held-out split", "choose another name")
        if data.path == spec.heldout.path:
            message = f"'{data.path}' is the held-out split"
            yield LintProblem(("data", name, "path"), message, "no stage may train on it; name another file")
    if (pool := spec.heldout.pool) is None:
        return
    if pool.data not in spec.data or spec.data[pool.data].row_kind not in (None, "items"):
        known = ", ".join(spec.data)
        yield LintProblem(("heldout", "pool", "data"), f"'{pool.data}' is not a data file of items", f"known: {known}")
    for index, stage in enumerate(spec.stages):
        if f"data.{pool.data}" in stage.inputs.values():
            message = f"stage '{stage.name}' reads the pool of the held-out split"
            yield LintProblem(("stages", index, "inputs"), message, "give it a file without the items of the pool")


def _lint_seed(spec: SessionSpec, _: int, stage: Stage) -> Iterator[LintProblem]:
    """Every stage runs under the single registered seed."""
    registered, seed = spec.analysis.seeds[0], stage.parameters.seed
    if seed != registered:
        default = "" if "seed" in stage.parameters.model_fields_set else " (the default)"
        message = f"seed is {seed}{default}, the analysis registers {registered}"
        yield LintProblem(("parameters", "seed"), message, f"write seed: {registered}, or once at the top of the spec")


def _lint_budget(spec: SessionSpec) -> Iterator[LintProblem]:
    """One attempt of every stage can be paid for, in order, by the rule the ledger reserves by."""
    budget = spec.budget
    shares = budget.held_back
    total = shares.evaluation + shares.review + shares.teardown
    if total >= 1:
        message = f"the held-back shares add up to {total:g}; nothing is left for the other stages"
        yield LintProblem(("budget", "held_back"), message, "keep their sum below 1")
        return
    yield from _lint_limits(spec)
    spent = 0.0
    stages = spec.with_resources().stages
    for stage in stages:
        value = shares.review + shares.teardown + (0.0 if kind_of(stage).reads_heldout else shares.evaluation)
        spent += attempt_usd(budget, stage)
        if spent + value * budget.max_cost_usd > budget.max_cost_usd + 1e-9:
            every = sum(attempt_usd(budget, stage) for stage in stages)
            message = (
                f"{budget.max_cost_usd:g} USD do not cover one attempt of each stage: up to '{stage.name}' they may "
                f"cost {spent:.2f} USD, and {value * budget.max_cost_usd:.2f} USD are held back "
                f"(all stages: {every:.2f} USD)"
            )
            hint = "raise max_cost_usd, or lower max_minutes or held_back"
            yield LintProblem(("budget", "max_cost_usd"), message, hint)
            return


def _lint_limits(spec: SessionSpec) -> Iterator[LintProblem]:
    """The limits of stages and builder leave room for one attempt, and are not larger than what they limit."""
    budget = spec.budget
    for index, stage in enumerate(spec.with_resources().stages):
        cap = attempt_usd(budget, stage)
        if (most := stage.max_cost_usd) is not None and cap > most + 1e-9:
            message = f"one attempt of '{stage.name}' may cost {cap:.2f} USD, its max_cost_usd is {most:g}"
            yield LintProblem(("stages", index, "max_cost_usd"), message, "raise it, or lower max_minutes")
    if budget.builder_max_usd is not None and budget.builder_max_usd > budget.max_cost_usd:
        message = f"builder_max_usd is {budget.builder_max_usd:g}, max_cost_usd of the session {budget.max_cost_usd:g}"
        yield LintProblem(("budget", "builder_max_usd"), message, "lower it: it is a part of max_cost_usd")


def _lint_hours(spec: SessionSpec) -> Iterator[LintProblem]:
    hours = sum(held_hours(stage) for stage in spec.with_resources().stages)
    if hours > spec.budget.max_hours + 1e-9:
        message = f"one attempt of each stage may take {hours:.2f} h, max_hours is {spec.budget.max_hours:g}"
        hint = "raise max_hours or lower max_minutes"
        yield LintProblem(("budget", "max_hours"), message, hint)


def _lint_plugins(spec: SessionSpec) -> Iterator[LintProblem]:
    """Every task and launcher that is named is there."""
    named: list[tuple[Loc, str, plugins.Group, tuple[str, ...]]] = [
        (("task",), spec.task, "peergate.tasks", TASKS),
        (("launcher",), spec.launcher, "peergate.launchers", LAUNCHERS),
    ]
    for index, stage in enumerate(spec.stages):
        if scorer := getattr(stage.parameters, "scorer", None):
            named.append((("stages", index, "parameters", "scorer"), scorer, "peergate.tasks", TASKS))
        if stage.launcher is not None:
            named.append((("stages", index, "launcher"), stage.launcher, "peergate.launchers", LAUNCHERS))
    for loc, name, group, own in named:
        known = (*own, *(entry_point.name for entry_point in plugins.find_entry_points(group)))
        if name not in known and not is_file(name):
            hint = suggest(name, known, "known")
            if loc == ("task",):
                hint += f"; a file next to the spec is written ./{name}.py"
            yield LintProblem(loc, f"unknown {group.removeprefix('peergate.')[:-1]} '{name}'", hint)


def _lint_machine(spec: SessionSpec, index: int, _: Stage) -> Iterator[LintProblem]:
    """What a stage asks for, its session's values included, is something its launcher can give and the ledger hold."""
    stage = spec.with_resources().stages[index]
    resources, launcher = stage.resources, spec.launcher_of(stage.name)
    if launcher == "skypilot" and (resources is None or resources.max_usd_per_hour is None):
        message = "a rented machine costs money, and no price cap is given"
        yield LintProblem(("launcher",), message, "add resources.max_usd_per_hour to the stage or the session")
    if launcher == "ray" and getattr(stage.parameters, "device", None) == "cuda" and not (resources and resources.gpus):
        # Ray hides GPUs from jobs that ask for cores alone; jobs that ask for nothing share all of them.
        message = "the stage has device: cuda, and Ray reserves a GPU only for jobs that request one"
        yield LintProblem(("parameters", "device"), message, "add resources.gpus: 1 to the stage or the session")
    if resources is None:
        return
    if resources.spot and launcher != "skypilot":
        message = f"'{launcher}' rents no machines, so none can be a spot machine"
        yield LintProblem(("resources", "spot"), message, "remove the line, or take skypilot")
    if resources.gpu is not None and launcher == "local":
        message = f"'local' cannot choose the kind of GPU '{resources.gpu}': it has what this machine has"
        yield LintProblem(("resources", "gpu"), message, "remove the line, or take another launcher")
    if resources.gpu is not None and not resources.gpus:
        message = f"the kind of GPU is '{resources.gpu}', and no number of GPUs is given"
        yield LintProblem(("resources", "gpu"), message, "add gpus: 1")
    if launcher == "skypilot" and resources.gpus and resources.gpu is None:
        message = f"{resources.gpus} GPUs without a kind: SkyPilot rents machines by the kind of their GPU"
        yield LintProblem(("resources", "gpus"), message, "add gpu, as SkyPilot names it: gpu: H200")
    if held_hours(stage) * 60 < stage.max_minutes - 1e-9:
        message = f"the machine is held for {held_hours(stage):g} h at most, the job may take {stage.max_minutes:g} min"
        hint = "raise max_hours: it includes the machine's start; or lower max_minutes"
        yield LintProblem(("resources", "max_hours"), message, hint)


def _locate_problem(spec: SessionSpec, index: int, result: LintProblem) -> LintProblem:
    """Return a stage's problem at the place where its value was written: in the stage, or in the session."""
    own = spec.stages[index].resources
    elsewhere = result.loc[0] == "resources" and (own is None or result.loc[1] not in own.model_fields_set)
    elsewhere |= result.loc == ("launcher",) and not spec.stages[index].launcher
    return result if elsewhere else replace(result, loc=("stages", index, *result.loc))


_OF_STAGES = (
    *(lint_name, lint_inputs, lint_samples, lint_code, lint_trained, lint_witness, lint_criteria),
    *(
        lint_ranges,
        lint_choices,
        lint_curated,
        lint_pilot,
        lint_example,
        lint_judge,
        lint_compared_answers,
        _lint_seed,
        _lint_machine,
    ),
)
_OF_SESSIONS = (
    *(
        _lint_plugins,
        _lint_data,
        lint_arms,
        lint_more_arms,
        lint_transfer,
        lint_curve,
        lint_controls,
        lint_evaluation,
        lint_heldout,
        lint_looks,
        lint_parties,
    ),
    *(lint_builder, lint_reviewer, _lint_budget, _lint_hours, lint_acceptance, lint_constitution_claims),
)


def _lint_examples(loc: Loc, principle: Principle) -> Iterator[LintProblem]:
    for place, example in enumerate(principle.examples):
        if example.draft.split() == example.revision.split():
            yield LintProblem((*loc, "examples", place, "revision"), "repeats the draft", "write the draft anew")
        for name, text in example:
            if "\n" in text.strip():
                message = "has several lines, and a model that continues the form stops at their end"
                yield LintProblem((*loc, "examples", place, name), message, "write it in one line")


def lint_constitution(constitution: Constitution) -> list[LintProblem]:
    """Return every way in which the constitution does not hold what it says."""
    problems: list[LintProblem] = []
    ids: dict[str, int] = {}
    texts: dict[str, int] = {}
    for index, principle in enumerate(constitution.principles):
        loc: Loc = ("principles", index)
        text = " ".join(principle.text.lower().split())
        if (first := ids.setdefault(principle.id, index)) != index:
            message = f"id '{principle.id}' is already used by principles[{first}]"
            problems.append(LintProblem((*loc, "id"), message, "ids are unique"))
        if (first := texts.setdefault(text, index)) != index:
            message = f"the same text as principles[{first}]"
            problems.append(LintProblem((*loc, "text"), message, "remove one of the two"))

        problems += _lint_examples(loc, principle)

    counts = Counter(principle.category for principle in constitution.principles)
    totals = constitution.totals
    if totals.principles != counts.total():
        message = f"says {totals.principles} principles, the file holds {counts.total()}"
        problems.append(LintProblem(("totals", "principles"), message, f"write {counts.total()}"))
    for category, number in totals.by_category.items():
        if number != counts[category]:
            message = f"says {number} in category '{category}', the file holds {counts[category]}"
            hint = (
                f"write {counts[category]}" if counts[category] else suggest(category, counts, "categories in the file")
            )
            problems.append(LintProblem(("totals", "by_category", category), message, hint))
    for category in counts:
        if category not in totals.by_category:
            message = f"category '{category}' has {counts[category]} principles but no total"
            hint = f"add {category}: {counts[category]}"
            problems.append(LintProblem(("totals", "by_category", category), message, hint))
    return problems
