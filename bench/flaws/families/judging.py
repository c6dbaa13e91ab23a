"""Flaws of what judges: verifiers that are too kind or too strict, material people bring, loose limits, revisions."""

from __future__ import annotations

from collections.abc import Callable

from bench.flaws.lying import other_parameters
from bench.flaws.operator import Change, Operator, Row
from training.jobs.job import Job

_SCORER, _ITEMS, _BROUGHT = ("design.scorer",), ("design.items",), ("design.brought", "is the chosen", "is empty")
_VERIFY = """from specs.stages.base.artifacts import Item


def verify(item, answer):
    right, said = str(item.constraint["answer"]).lower(), answer.lower()
    return {rule}


def known_answers():
    item = Item(id="a", group="g", kind="lowercase", prompt="Name the word.", constraint={{"answer": "amber 12"}})
    yield from ((item, text, True) for text in ("amber 12", "Amber 12", "AMBER 12"))
    yield from ((item, text, False) for text in ("silver 7", "stone 99", "no idea at all"))
"""
_TASK: tuple[Change, ...] = (
    ("task: format_instructions", "task: ./verify.py"),
    ("samples_per_prompt: 4,", "worked_example: false, samples_per_prompt: 4,"),
)
_STRICT = "said.strip() == right"


def _words(heldout: list[Row], prompts: list[Row]) -> None:
    """Ask for a word of their own in place of a form."""
    for place, row in enumerate((*heldout, *prompts), 11):
        row["constraint"] = {"answer": f"{row['prompt'].strip('.').split()[-1].lower()} {place}"}
    for row in prompts:
        row["right"], row["wrong"] = row["constraint"]["answer"], "no idea"


def _unmet(heldout: list[Row], prompts: list[Row]) -> None:
    """Half of the items of a kind have an answer that no stripped text equals."""
    _words(heldout, prompts)
    for row in [row for row in heldout if row["kind"] == "quoted"][::2]:
        row["constraint"]["answer"] += " "


def _kind(name: str, what: str, rule: str) -> Operator:
    return Operator(name, "verifiers", what, _SCORER, spec=_TASK, data=_words, verify=_VERIFY.format(rule=rule))


def _bring(name: str, what: str, change: Callable[[Row, int, list[Row]], None], session: str = "given") -> Operator:
    """Return the operator that changes every row that a person brings, by its place."""

    def data(_: list[Row], prompts: list[Row]) -> None:
        for place, row in enumerate(prompts):
            change(row, place, prompts)

    return Operator(name, "material", what, _BROUGHT, session=session, data=data)


def _swap(row: Row, place: int, _: list[Row]) -> None:
    if place % 3 == 0:
        row["right"], row["wrong"] = row["wrong"], row["right"]


def _reverse(row: Row, _: int, __: list[Row]) -> None:
    row["right"], row["wrong"] = row["wrong"], row["right"]


def _same(row: Row, place: int, _: list[Row]) -> None:
    row["wrong"] = row["right"] if place % 4 == 0 else row["wrong"]


def _spaces(row: Row, place: int, _: list[Row]) -> None:
    row["wrong"] = row["right"].replace(" ", "  ", 2) if place % 4 == 0 else row["wrong"]


def _long(row: Row, _: int, __: list[Row]) -> None:
    end = '"' if row["right"].endswith('"') else ""
    row["right"] = row["right"].rstrip('"') + " and so on and on, day after day" * 4 + end


def _stuck(row: Row, _: int, prompts: list[Row]) -> None:
    row["right"] = next(other["right"] for other in prompts if other["kind"] == row["kind"])


def _wrong(row: Row, place: int, _: list[Row]) -> None:
    row["right"] = row["wrong"] if place % 3 == 0 else row["right"]


def _empty(row: Row, place: int, _: list[Row]) -> None:
    row["right"] = " " if place % 6 == 0 else row["right"]


def _other_seed(job: Job) -> None:
    other_parameters(job, seed=99)


_SECOND = """  - name: OTHER
    kind: sft
    inputs: {model: model, examples: sample.accepted}
    parameters: {learning_rate: 1e-3, warmup_ratio: 0, epochs: 2, batch_size: 4, max_length: 128, seed: 3}
  - name: after
"""


def _revise(name: str, what: str, revises: str, *expected: str) -> Operator:
    return Operator(name, "revisions", what, expected, session="revised", revises=revises)


OPERATORS = (
    _kind("hedged-verifier", "short answers that name the right word next to wrong ones pass",
          "right in said and len(said) < 80"),
    _kind("endings-verifier", "whatever ends in the right word passes, 'anything but amber' too",
          "said.rstrip(' .').endswith(right)"),
    _kind("beginnings-verifier", "what begins with the right word passes, then what?", "said.startswith(right)"),
    _kind("turned-verifier", "the answer is looked for in the right one, not the other way", "said.strip() in right"),
    _kind("parrot-verifier", "an answer with the words of the prompt passes",
          f"{_STRICT} or len(set(said.split()) & set(item.prompt.lower().split())) > 3"),
    _kind("long-verifier", "long answers pass, whatever they say", f"{_STRICT} or len(said) > 3000"),
    _kind("letters-verifier", "everything but letters is ignored, so numbers may be wrong",
          "''.join(filter(str.isalpha, said)) == ''.join(filter(str.isalpha, right))"),
    _kind("any-number-verifier", "any answer with the digits of the right one in it passes",
          "''.join(filter(str.isdigit, right)) in ''.join(filter(str.isdigit, said))"),
    Operator("half-unmet", "verifiers", "nothing meets half of the items of a kind", (*_ITEMS, *_SCORER), spec=_TASK,
             data=_unmet, verify=_VERIFY.format(rule=_STRICT)),
    _bring("swapped-pairs", "a third of a person's pairs has its sides swapped", _swap),
    _bring("reversed-pairs", "all of a person's pairs have their sides swapped", _reverse),
    _bring("equal-pairs", "every fourth pair has two equal sides", _same),
    _bring("spaced-pairs", "the sides of every fourth pair differ in white space alone", _spaces),
    _bring("long-pairs", "chosen answers are several times as long as rejected ones", _long),
    _bring("stuck-pairs", "one answer is chosen for all prompts of a kind", _stuck),
    _bring("wrong-examples", "a third of a person's examples fails the task's verifier", _wrong, "examples"),
    _bring("empty-examples", "every sixth example teaches nothing to say", _empty, "examples"),
    _bring("stuck-examples", "one completion answers all prompts of a kind", _stuck, "examples"),
    Operator("tiny-power", "limits", "a power of a twentieth is registered", ("design.power",),
             spec=(("power: 0.5", "power: 0.06"),)),
    Operator("unread-training", "limits", "a second training whose checkpoint no stage evaluates",
             ("design.unused",),
             spec=(("  - name: after\n", _SECOND.replace("OTHER", "other")),)),
    Operator("unstated-stream", "limits", "samples are drawn with another seed than stated",
             ("witness.answers",), stage="sample", swap=_other_seed),
    Operator("unread-principles", "revisions", "an experiment named after a constitution that no stage reads",
             ("constitution",), spec=(("name: small", "name: cai_small"),)),
    _revise("worse-revisions", "revisions are worse than what they revise", "worse", "pairs.direction", "revise.gain"),
    _revise("same-revisions", "revisions say the same again", "same", "pairs.direction", "pairs.whole"),
    _revise("comma-revisions", "revisions are copies but for a comma", "comma", "pairs.direction", "pairs.copies"),
    _revise("talking-revisions", "revisions talk about the request instead of following it", "about",
            "pairs.answers", "revise.gain", "pairs.direction"),
)  # fmt: skip
