"""A verifier without known answers is tested on the answers that items of its own name."""

from __future__ import annotations

from pathlib import Path

import pytest

from reviews.stages.evaluation.scorer_admission import named_answers
from reviews.stages.evaluation.scorer_checks import check_admission
from specs.loading.loading import load_spec
from specs.stages.base.artifacts import Item
from specs.system.errors import EvidenceMissing, PluginFault
from testing.factories.spec_files import write_spec
from testing.fixtures.sandbox import needs_sandbox

NO_EXAMPLE = (("parameters: {temperature", "parameters: {worked_example: false, temperature"),)
RIGHT = "def verify(item, answer):\n    return answer == item.constraint['answer']\n"


def items(*answers: str) -> tuple[Item, ...]:
    return tuple(
        Item(id=f"i{n}", group="g", kind="k", prompt=f"p{n}", constraint={"answer": answer})
        for n, answer in enumerate(answers)
    )


def check_answers(
    folder: Path, verifier: str, heldout: tuple[Item, ...], data: tuple[Item, ...] = ()
) -> tuple[str, str]:
    (folder / "verify.py").write_text(verifier, encoding="utf-8")
    spec = load_spec(write_spec(folder, ("task: format_instructions", "task: ./verify.py"), *NO_EXAMPLE)).spec
    outcome = check_admission(spec, spec.task, {"train": data}, heldout)
    return outcome.status, outcome.detail.partition("' ")[2]


@needs_sandbox
def test_it_takes_its_own_answers_and_refuses_others(tmp_path: Path) -> None:
    status, detail = check_answers(tmp_path, RIGHT, items("a", "b"), items("c"))
    assert (status, detail) == (
        "PASS",
        "takes the answers that 3 items name, and 0 of 3 answers to other items; no labelled sample is registered",
    )


@needs_sandbox
@pytest.mark.parametrize(
    ("verifier", "answers", "detail"),
    [
        (
            "def verify(item, answer):\n    return True\n",
            "abc",
            "and 3 of 3 answers to other items: it does not distinguish them",
        ),
        ("def verify(item, answer):\n    return False\n", "abc", "refuses the answer that 3 of 3 items name as right"),
        (RIGHT.replace("==", ">="), "abcde", "and 4 of 5 answers to other items: it does not distinguish them"),
        (RIGHT.replace("answer ==", "answer != 'b' and answer =="), "abc", "that 1 of 3 items name"),
    ],
)
def test_a_judge_that_distinguishes_nothing_is_refused(
    tmp_path: Path, verifier: str, answers: str, detail: str
) -> None:
    status, result = check_answers(tmp_path, verifier, items(*answers))
    assert status == "FAIL" and detail in result, result


@needs_sandbox
@pytest.mark.parametrize("answers", ["ab", "aaaa"])
def test_too_few_answers_say_nothing(tmp_path: Path, answers: str) -> None:
    with pytest.raises(EvidenceMissing, match=r"known_answers\(\) return"):
        check_answers(tmp_path, RIGHT, items(*answers))


def test_others_are_answers_of_another_text() -> None:
    named = named_answers(items("a", "a", "b"))
    assert [(verifier_case.item.id, verifier_case.output) for verifier_case in named.others] == [
        ("i0", "b"),
        ("i1", "b"),
        ("i2", "a"),
    ]


KEYS = "import json\ndef verify(item, answer):\n    return set(json.loads(answer)) == {'a', 'b'}\n"


@needs_sandbox
@pytest.mark.parametrize(
    ("verifier", "status", "detail"),
    [
        (KEYS, "WARN", "has no known answers. It refuses what answers nothing"),
        (KEYS.replace("{'a', 'b'}", "{'n'}"), "WARN", "takes a value of 3 of 3 items; that it is the right one"),
        ("def verify(item, answer):\n    return True\n", "FAIL", "takes an empty answer as right for 3 of 3 items"),
        ("def verify(item, answer):\n    return 'Name' in answer\n", "FAIL", "takes the prompt itself as right"),
        ("def verify(item, answer):\n    return len(answer) > 20\n", "FAIL", "takes words without meaning as right"),
        (
            "def verify(item, answer):\n    return answer != item.prompt and 'Name' in answer\n",
            "FAIL",
            "takes another item's prompt as right",
        ),
        ("def verify(item, answer):\n    return ' not ' in answer\n", "FAIL", "takes 'I do not know.' as right"),
    ],
)
def test_without_any_known_answer_nonsense_is_refused_and_the_rest_is_a_warning(
    tmp_path: Path, verifier: str, status: str, detail: str
) -> None:
    requests = tuple(
        Item(id=f"i{n}", group=f"g{n}", kind="k", prompt=f"Name {n}.", constraint={"n": n}) for n in range(3)
    )
    pair = check_answers(tmp_path, verifier, requests)
    assert pair[0] == status and detail in pair[1], pair
    assert "let known_answers() return" in pair[1]


NUMBERS = tuple(
    Item(id=f"i{n}", group=f"g{n}", kind="k", prompt=f"Add up row {row}.", constraint={"n": n})
    for row, n in zip("abcde", (6, 12, 35, 48, 70), strict=True)
)
TEXTS = tuple(
    Item(id=f"i{n}", group=f"g{n}", kind="k", prompt=f"Add up row {n}.", constraint={"name": f" Elm{n}"})
    for n in range(5)
)
NEVER = {
    "another type": ("answer == item.constraint['n']", NUMBERS, "as text instead of numbers"),
    "another type, in words": ("item.constraint['n'] in answer.split()", NUMBERS, "as text instead of numbers"),
    "small letters": ("answer.strip().lower() == item.constraint['name'].strip()", TEXTS, "in small letters"),
    "spaces": ("answer.strip() == item.constraint['name']", TEXTS, "without spaces around them"),
}
BREAKS = {
    "another type": "import re; return re.sub('x', '', answer) == re.sub('x', '', item.constraint['n'])",
    "a sum": "return answer + item.constraint['n'] == ''",
    "a caught conversion": "return int(answer) == len(item.constraint['n'])",
}


@needs_sandbox
@pytest.mark.parametrize(("verdict", "requests", "form"), NEVER.values(), ids=NEVER)
def test_one_that_can_never_say_yes_is_refused(
    tmp_path: Path, verdict: str, requests: tuple[Item, ...], form: str
) -> None:
    status, detail = check_answers(tmp_path, f"def verify(item, answer):\n    return {verdict}\n", requests)
    assert status == "FAIL" and f"if the items held them {form}, so convert what it compares" in detail, detail


@needs_sandbox
@pytest.mark.parametrize("verdict", ["answer.count(',') + 1 == item.constraint['n']", "len(answer) == 91"])
def test_one_that_judges_another_form_is_admitted_with_a_warning(tmp_path: Path, verdict: str) -> None:
    status, detail = check_answers(tmp_path, f"def verify(item, answer):\n    return {verdict}\n", NUMBERS)
    assert status == "WARN" and "that it takes what is right is not shown" in detail, detail


@needs_sandbox
@pytest.mark.parametrize("verdict", BREAKS.values(), ids=BREAKS)
def test_one_that_breaks_on_every_answer_is_refused_with_its_line(tmp_path: Path, verdict: str) -> None:
    status, detail = check_answers(tmp_path, f"def verify(item, answer):\n    {verdict}\n", NUMBERS)
    assert status == "FAIL" and "breaks on every answer that was tried" in detail, detail
    assert "verify.py:2: its verifier breaks" in detail and "Error: " in detail, detail


KIND = {
    "not a number": ("float(answer) == number or float(answer) != float(answer)", "takes 'nan' as right for 5 of 5"),
    "no difference": ("not abs(float(answer) - number) > 0.1", "takes 'nan' as right for 5 of 5"),
    "the end of a number": ("answer.strip().endswith(str(number))", "such as '16' for '6': compare whole numbers"),
    "the beginning": ("answer.strip().startswith(str(number))", "digits after the right one for 5 of 5"),
    "part of a number": ("str(number) in answer and len(answer) < 5", "more digits before the right one"),
}
STRICT = {
    "equal": "answer.strip() == str(number)",
    "a number": "float(answer) == number",
    "a tolerance": "abs(float(answer) - number) < 0.5",
    "a tag": "answer == f'<answer>{number}</answer>'",
    "the last number": "__import__('re').findall(r'-?[0-9]+', answer)[-1:] == [str(number)]",
    "at least": "answer.isdigit() and int(answer) >= number",
    "a multiple": "answer.isdigit() and int(answer) % number == 0",
    "so many words": "len(answer.split()) == number or answer == f'{number}'",
}


@needs_sandbox
@pytest.mark.parametrize(("verdict", "message"), KIND.values(), ids=KIND)
def test_one_that_takes_what_is_not_the_number_is_refused(tmp_path: Path, verdict: str, message: str) -> None:
    status, detail = check_answers(tmp_path, _of_number(verdict), NUMBERS)
    assert status == "FAIL" and message in detail, detail


@needs_sandbox
@pytest.mark.parametrize("verdict", STRICT.values(), ids=STRICT)
def test_a_judge_that_distinguishes_only_numbers_is_admitted_with_a_warning(tmp_path: Path, verdict: str) -> None:
    status, detail = check_answers(tmp_path, _of_number(verdict), NUMBERS)
    assert status == "WARN" and "takes a value of 5 of 5 items" in detail, detail


def _of_number(verdict: str) -> str:
    return f"def verify(item, answer):\n    number = item.constraint['n']\n    return {verdict}\n"


LISTS = {
    "a substring": "def verify(item, answer):\n    return item.constraint['answer'] in answer\n",
    "a word": "def verify(item, answer):\n    return item.constraint['answer'] in answer.split()\n",
    "a line": "def verify(item, answer):\n    return item.constraint['answer'] in answer.splitlines()\n",
}


@needs_sandbox
@pytest.mark.parametrize("verifier", [*LISTS.values(), RIGHT], ids=[*LISTS, "equality"])
def test_one_that_takes_a_list_of_all_answers_is_refused(tmp_path: Path, verifier: str) -> None:
    status, detail = check_answers(tmp_path, verifier, items("11", "23", "37", "48", "59", "64"))
    assert (status == "PASS") == (verifier == RIGHT), detail
    assert verifier == RIGHT or "list" in detail, detail


@needs_sandbox
@pytest.mark.parametrize(
    "pattern",
    [
        r"(\w+\s?)*$",
        pytest.param(r"(a+)+$", marks=pytest.mark.more),
        pytest.param(r"(\d+\s*)*$", marks=pytest.mark.more),
        pytest.param(r"(\(|\()*$", marks=pytest.mark.more),
    ],
)
def test_one_that_takes_years_for_a_long_answer_is_a_fault(tmp_path: Path, pattern: str) -> None:
    verifier = f"import re\ndef verify(item, answer):\n    odd = re.match(r'{pattern}', answer) and len(answer) > 99\n"
    values = (("stages:", "verifier: {seconds: 1}\nstages:"),)
    (tmp_path / "verify.py").write_text(
        f"{verifier}    return bool(odd) or answer == item.constraint['answer']\n", encoding="utf-8"
    )
    path = write_spec(tmp_path, ("task: format_instructions", "task: ./verify.py"), *NO_EXAMPLE, *values)
    spec = load_spec(path).spec
    with pytest.raises(PluginFault, match="takes more than 1 s") as error:
        check_admission(spec, spec.task, {}, items("a", "b", "c"))
    assert "`verifier: {seconds: 60}`" in error.value.hint
    (tmp_path / "verify.py").write_text(RIGHT, encoding="utf-8")
    assert check_admission(spec, load_spec(path).spec.task, {}, items("a", "b", "c")).status == "PASS"
