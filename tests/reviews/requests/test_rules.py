"""Rules that find faults without a model: each fault is planted and found, and its sound twin is left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reviews.requests.answer_forms import places_in
from reviews.requests.citations import CitationResolver
from reviews.requests.file_reading import FOR_RULES, RequestReader
from reviews.requests.rules.file_review import review_by_rule
from reviews.requests.rules.rule_findings import RuleMaterial
from reviews.requests.rules.scorecard import score
from reviews.requests.rules.stated_numbers import held_in, stated_in
from reviews.requests.run_evidence import RunEvidence, add_run
from sessions.pages.report.report import rendered_again
from specs.system.digests import digest_bytes
from specs.system.errors import EvidenceMissing
from specs.system.masking import Masker
from specs.trail.requested_review import AdversarialAnswer, ReadFile, ReviewAnswer
from testing.factories.small_run import small_run
from testing.factories.spec_files import write_spec


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def reviewed(folder: Path, files: dict[str, str], hidden: str = "") -> ReviewAnswer:
    """Write files, have rules look at them, and check that every place really is there."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    reader = RequestReader(Masker({}), lambda path: not hidden or hidden not in path.name, FOR_RULES)
    reader.add(str(folder), "file")
    answer = review_by_rule(
        RuleMaterial(reader.reading, reader.sources, lambda path: not hidden or hidden not in path.name, str), "code"
    )
    places = CitationResolver(reader.reading)
    assert all(places.holds(citation) for citation in places_in(answer))
    assert answer.not_judged and "a model or a person must decide" in answer.overall_assessment
    return answer


def list_issues(answer: ReviewAnswer) -> list[tuple[str, str, list[str]]]:
    return [(issue.severity, issue.statement, [str(place) for place in issue.evidence]) for issue in answer.issues]


def notebook(*cells: tuple[str, list[str]]) -> str:
    """Return a notebook as Jupyter writes it, with an output before each source."""
    document = {
        "cells": [
            {"cell_type": kind, "outputs": [{"text": ["import random\n"]}], "source": source} for kind, source in cells
        ],
        "nbformat": 4,
    }
    return json.dumps(document, indent=1)


def test_cells_of_notebooks_are_read_and_their_lines_cited(here: Path) -> None:
    cells = [("markdown", ["random.random()\n"]), ("code", ["%pip install x\n", "import random\n", "random.random()"])]
    (issue,) = reviewed(here, {"a.ipynb": notebook(*cells)}).issues
    assert "no file that was read sets a seed" in issue.statement
    assert issue.evidence[0].quote == '"random.random()"'
    seeded = [*cells, ("code", ["!ls\n", "random?\n", "random.seed(3)"]), ("code", ["%%bash\n", "x=(\n"])]
    assert not reviewed(here, {"a.ipynb": notebook(*seeded)}).issues


@pytest.mark.parametrize("text", ["{", "[]", '{"cells": [{}]}', json.dumps(json.loads(notebook(("code", ["x\n"]))))])
def test_what_has_not_the_form_of_a_notebook_is_not_judged(here: Path, text: str) -> None:
    answer = reviewed(here, {"a.ipynb": text})
    assert not answer.issues and any(line.startswith("a.ipynb: cannot be parsed") for line in answer.not_judged)


def test_prose_is_left_to_a_model(here: Path) -> None:
    """Rules found none of 12 flawed plans in plain words, and raised wrong concerns about all 24."""
    answer = reviewed(here, {"plan.md": "We pick the checkpoint with the best test accuracy and report it."})
    assert not answer.issues and not answer.statistical_concerns
    assert "prose, which only a model reads (`--vendor`): plan.md" in answer.not_judged


@pytest.mark.parametrize(
    ("code", "severity", "words", "line"),
    [
        ("def f(:\n    pass\n", "CRITICAL", "not valid Python", 1),
        ("import random\n\nrandom.shuffle([1])\n", "HIGH", "no file that was read sets a seed", 3),
        ("import numpy as np\nx = np.random.rand(3)\n", "HIGH", "sets a seed", 2),
        ("from numpy import random\nx = random.rand(3)\n", "HIGH", "sets a seed", 2),
        ("import torch\nx = torch.randperm(3)\n", "HIGH", "sets a seed", 2),
        ("from random import choice\nx = choice([1])\n", "HIGH", "sets a seed", 2),
        ("import numpy as np\nr = np.random.default_rng()\n", "HIGH", "generator without a seed", 2),
        ("from sklearn.model_selection import train_test_split\na = train_test_split([1])\n", "HIGH", "sets a seed", 2),
        ("for x in []:\n    try:\n        f(x)\n    except:\n        continue\n", "HIGH", "every error is caught", 4),
        ("try:\n    f()\nexcept Exception:\n    pass\n", "HIGH", "every error is caught", 3),
    ],
)  # fmt: skip
def test_faults_in_code_are_found_at_their_line(here: Path, code: str, severity: str, words: str, line: int) -> None:
    (issue,) = list_issues(reviewed(here, {"a.py": code}))
    assert issue[0] == severity and words in issue[1] and issue[2] == [f"a.py:{line}"]


@pytest.mark.parametrize(
    "code",
    [
        "import random\nrandom.seed(1)\nrandom.shuffle([1])\n",
        "import random\nfrom transformers import set_seed\nset_seed(7)\nrandom.shuffle([1])\n",
        "import numpy as np\nr = np.random.default_rng(3)\nx = r.random()\n",
        "import torch\nx = torch.randperm(3, generator=g)\n",
        "from sklearn.model_selection import train_test_split\na = train_test_split([1], random_state=3)\n",
        "class Deck:\n    def shuffle(self): ...\nDeck().shuffle()\nrandom = Deck()\nrandom.shuffle()\n",
        "try:\n    f()\nexcept ValueError:\n    pass\n",
        "try:\n    f()\nexcept Exception as error:\n    raise RuntimeError from error\n",
        "p = stats.chi2.sf(3, 1)\nq = 1 - x\n",
    ],
)
def test_sound_code_is_left_alone(here: Path, code: str) -> None:
    answer = reviewed(here, {"a.py": code})
    assert (list_issues(answer), answer.statistical_concerns) == ([], ())
    assert answer.overall_assessment.startswith("No rule found a fault, which is not an assessment.")


def test_the_best_case_by_rule_is_what_nothing_was_found_in(here: Path) -> None:
    faulty = {"a.py": "import random\nrandom.shuffle([1])\n"}
    best_case = reviewed(here, faulty).best_case
    assert best_case is not None and (best_case.argument, best_case.evidence) == (
        "Nothing that rules look up was found to hold.",
        (),
    )
    best_case = reviewed(here, faulty | {"b.py": "\nx = 1\n"}).best_case
    assert best_case is not None and best_case.argument == "By rule this holds: no rule found a fault in b.py."
    assert [str(citation) for citation in best_case.evidence] == ["b.py:2"]
    # Who could not read a file, or saw too much to list all of it, vouches for none.
    unread = {"c.py": f"x = {'-' * 9999}1", "train.jsonl": HELD, "more.train.jsonl": HELD, "heldout.jsonl": HELD}
    assert reviewed(here, unread).best_case == best_case


def test_a_seed_that_another_file_sets_counts(here: Path) -> None:
    assert (
        list_issues(
            reviewed(here, {"main.py": "import random\nrandom.seed(1)\n", "lib.py": "import random\nrandom.random()\n"})
        )
        == []
    )


def test_a_p_value_that_rounds_to_nothing_is_a_concern(here: Path) -> None:
    (concern,) = reviewed(
        here, {"a.py": "from scipy import stats\n\np = 1 - stats.chi2.cdf(49.4, 1)\n"}
    ).statistical_concerns
    assert "1 - cdf" in concern.statement and str(concern.evidence[0]) == "a.py:3"


HELD = '{"prompt": "Name three rivers of Europe."}\n{"prompt": "Which planet is the largest of all?"}\n'


@pytest.mark.parametrize(
    ("train", "how"),
    [
        ('{"prompt": "Name three rivers of Europe."}\n', "1 exact"),
        ('{"prompt": "x y z"}\n{"question": "NAME THREE RIVERS OF EUROPE!"}\n', "1 normalised"),
        ('{"messages": [{"role": "user", "content": "Name three rivers of Europe."}]}\n', "1 exact"),
    ],
)
def test_held_out_questions_in_the_training_data_are_found(here: Path, train: str, how: str) -> None:
    (issue,) = list_issues(reviewed(here, {"data/train.jsonl": train, "data/heldout.jsonl": HELD}))
    assert issue[0] == "CRITICAL" and f"the training data hold 1 of 2 held-out questions ({how})" in issue[1]
    assert issue[2] == [f"data/train.jsonl:{train.count(chr(10))}", "data/heldout.jsonl:1"]


def test_data_that_does_not_overlap_is_left_alone_and_half_of_a_pair_is_reported(here: Path) -> None:
    train = '{"prompt": "Write a tale of the sea."}\n'
    answer = reviewed(here, {"train.jsonl": train, "heldout.jsonl": HELD})
    assert list_issues(answer) == [] and answer.best_case is not None
    assert (
        answer.best_case.argument
        == "By rule this holds: none of 2 held-out questions is in the training data (1 rows)."
    )
    empty = reviewed(here, {"train.jsonl": train, "heldout.jsonl": ""}).best_case
    assert empty is not None and empty.evidence == ()
    (here / "heldout.jsonl").write_text(HELD, encoding="utf-8")
    (here / "heldout.jsonl").unlink()
    assert any("only one of the two" in text for text in reviewed(here, {}).not_judged)


def test_a_held_out_question_that_is_asked_twice_is_found(here: Path) -> None:
    (issue,) = list_issues(
        reviewed(here, {"test_items.jsonl": HELD + '{"prompt": "which PLANET is the largest of all"}\n'})
    )
    assert issue == (
        "HIGH",
        "1 of 3 held-out questions repeat another: n counts rows, not questions",
        ["test_items.jsonl:2", "test_items.jsonl:3"],
    )


def test_data_without_the_form_of_data_is_reported(here: Path) -> None:
    answer = reviewed(here, {"train.jsonl": "not json\n", "rows.jsonl": HELD})
    assert any("train.jsonl: too large, or not one JSON object" in text for text in answer.not_judged)
    assert any("rows.jsonl: its name says neither" in text for text in answer.not_judged)


def test_data_too_large_to_be_shown_is_compared_all_the_same(here: Path) -> None:
    output = "x" * 1000
    rows = "".join(
        json.dumps({"prompt": f"Tell the tale number {n} of the {n} seas.", "told": output}) + "\n" for n in range(2000)
    )
    for name, text in {"train.jsonl": rows + HELD, "heldout.jsonl": HELD}.items():
        (here / name).write_text(text, encoding="utf-8")
    reader = RequestReader(Masker({}), limits=FOR_RULES)
    reader.add(".", "file")
    assert [file.name for file in reader.reading.left_out] == ["train.jsonl"]
    answer = review_by_rule(RuleMaterial(reader.reading, reader.sources, lambda _: True, str), "code")
    assert "2 of 2 held-out questions" in answer.issues[0].statement


def test_settings_without_a_seed_are_found(here: Path) -> None:
    files = {"a.json": '{\n  "train": {\n    "learning_rate": 1e-5\n  }\n}', "b.yaml": "learning_rate: 0.1\nseed: 3\n"}
    assert list_issues(reviewed(here, files)) == [
        ("HIGH", "training settings without a seed: what they give cannot be repeated", ["a.json:3"])
    ]


def test_a_spec_with_problems_is_reported_as_the_loader_reports_it(here: Path) -> None:
    write_spec(here, ("    kind: sft", "    kind: stf"), ("  alpha: 0.05", "  alpha: 5"))
    issues = [row for row in list_issues(reviewed(here, {})) if row[2][0].startswith("spec.yaml")]
    lines = (here / "spec.yaml").read_text(encoding="utf-8").splitlines()
    places = [f"spec.yaml:{lines.index(line) + 1}" for line in ("  alpha: 5", "    kind: stf")]
    assert [(issue[0], issue[2]) for issue in issues] == [("CRITICAL", [place]) for place in places]
    assert "alpha must be below 1, got 5" in issues[0][1] and "did you mean 'sft'?" in issues[1][1]


def test_a_design_that_its_gate_would_stop_is_reported(here: Path) -> None:
    write_spec(here)
    answer = reviewed(here, {})
    lines = (here / "spec.yaml").read_text(encoding="utf-8").splitlines()
    results = {row[1].split(":")[0]: (row[0], row[2]) for row in list_issues(answer)}
    # The small spec has three items, and they are those of the training data.
    assert results["design check design.power is FAIL"] == ("CRITICAL", [f"spec.yaml:{lines.index('analysis:') + 1}"])
    assert results["design check design.overlap is FAIL"] == ("CRITICAL", [f"spec.yaml:{lines.index('heldout:') + 1}"])
    assert answer.best_case is not None and "design check design.overlap" not in answer.best_case.argument
    assert "design check design.paired is PASS" in answer.best_case.argument
    (concern,) = answer.statistical_concerns
    assert "design.seeds is WARN" in concern.statement


def test_a_spec_whose_data_may_not_be_read_is_not_looked_into(here: Path) -> None:
    write_spec(here)
    answer = reviewed(here, {}, hidden="heldout")
    assert answer.issues == () and any("may not be read here" in text for text in answer.not_judged)


def made(text: str, role: Any = "claims", name: str = "report.md") -> ReadFile:
    return ReadFile(name=name, role=role, digest=digest_bytes(text.encode()), bytes=len(text), text=text)


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("accuracy: 0.53", [("accuracy", "=", 0.53)]),
        ("Accuracy rose from 5 % to 53.3 %.", [("accuracy", "=", 0.05), ("accuracy", "=", 0.533)]),
        ("held-out accuracy 0.050 -> 0.533 on 120 items", [("accuracy", "=", 0.05), ("accuracy", "=", 0.533)]),
        ("| accuracy_gain | 0.4833 | 0.3810 to 0.5700 | 120 |", [("accuracy_gain", "=", 0.4833)]),
        ("a gain of 48.3 points", [("accuracy_gain", "=", 0.483)]),
        ("59 gained, 1 lost", [("gained", "=", 59), ("lost", "=", 1)]),
        ("McNemar p = 1.1e-16, p < .001", [("mcnemar_p", "=", 1.1e-16), ("mcnemar_p", "<", 0.001)]),
        ("p\u2264 0.05", [("mcnemar_p", "<=", 0.05)]),
        ("a p-value of 1.1 \u00d7 10^-16", [("mcnemar_p", "=", 1.1e-16)]),
        ("| train_tokens | 12,345 |", [("train_tokens", "=", 12345)]),
        ("truncation rate \u2212 0.2", []),
        ("Cohen's h = \u22120.2", [("cohens_h", "=", -0.2)]),
        # None of these says what the accuracy is.
        ("accuracy on 120 items was good", []),
        ("the accuracy of the 135M model", []),
        ("accuracy (95 % interval 0.4 to 0.5)", []),
        ("accuracy 0.5B", []),
        ("inaccuracy 0.5", []),
        ("step 3: accuracy", []),
        ("version p 3", []),
        ("10 samples and 20 items", []),
    ],
)  # fmt: skip
def test_a_number_counts_only_right_next_to_its_name(text: str, results: list[tuple[str, str, float]]) -> None:
    stated = [(number.name, number.sign, pytest.approx(number.value)) for number in stated_in(made(text), [])]
    assert stated == results


def test_numbers_are_found_in_json_with_their_names() -> None:
    text = (
        '{"accuracy": {"value": 0.5, "n": 120},\n "loss": 2.5e-1,\n "bleu": {\n  "value": 31\n }, "name": "x", "n": 7}'
    )
    assert [
        (number.name, number.value, number.place.first_line) for number in held_in(made(text, "evidence", "m.json"))
    ] == [
        ("accuracy", 0.5, 1),
        ("loss", 0.25, 2),
        ("bleu", 31, 4),
    ]
    rows = "\n".join(f'{{"loss": {n}}}' for n in range(50))
    assert list(held_in(made(rows, "evidence", "rows.json"))) == [], "a column of rows is not a result"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("runs"))


def scored(run: Path, change: tuple[str, str] | None = None, name: str = "report.md") -> AdversarialAnswer:
    """Score a session's own report, with one text of it replaced."""
    path = run / "report" / name
    before = path.read_text(encoding="utf-8")
    if change is not None:
        assert change[0] in before
        path.write_text(before.replace(*change, 1), encoding="utf-8")
    try:
        reader = RequestReader(Masker({}), limits=FOR_RULES)
        evidence = add_run(reader, run, claims=True, rendered=rendered_again(run))
        answer = score(reader.reading, [evidence])
        assert all(CitationResolver(reader.reading).holds(citation) for citation in places_in(answer))
        return answer
    finally:
        path.write_text(before, encoding="utf-8")


def test_a_true_report_is_supported_to_its_last_line(run: Path) -> None:
    answer = scored(run)
    lines = [
        len((run / "report" / name).read_text(encoding="utf-8").split("\n")) for name in ("report.md", "report.json")
    ]
    assert [(row.status, row.claim) for row in answer.scorecard] == [
        ("supported", f"{lines[1]} lines of small/report/report.json"),
        ("supported", f"{lines[0]} lines of small/report/report.md"),
    ]
    assert (answer.overclaimed, answer.fixes) == ((), ())
    assert answer.best_case is not None and [citation.file for citation in answer.best_case.evidence] == [
        f"rendered again/small/report/{name}" for name in ("report.md", "report.json")
    ]
    assert "they do not read" in answer.overall_assessment and len(answer.not_judged) >= 3


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("report.md", ("0.050 -> 0.533", "0.050 -> 0.633")),
        ("report.md", ("59 gained", "69 gained")),
        ("report.md", ("p < 0.05", "p < 1e-30")),
        ("report.md", ("| treatment accuracy | 0.5333", "| treatment accuracy | 0.0500")),
        ("report.md", ("Not reached: base", "Reached: base")),
        ("report.json", ("0.4833333", "0.5833333")),
    ],
)
def test_a_changed_line_of_a_report_is_contradicted(run: Path, name: str, change: tuple[str, str]) -> None:
    text = (run / "report" / name).read_text(encoding="utf-8").split("\n")
    number = next(at for at, line in enumerate(text, 1) if change[0] in line)
    (row,) = [row for row in scored(run, change, name).scorecard if row.status == "contradicted"]
    assert str(row.stated_at) == f"small/report/{name}:{number}" and change[1][:20] in row.claim
    assert str(row.evidence[0]) == f"rendered again/small/report/{name}:{number}" and change[0][:20] in row.explanation


LOST = "| lost | 1 |  | 120 | baseline right, treatment wrong; of several answers: fewer of them right |"


@pytest.mark.parametrize(
    ("change", "says", "gives"),
    [
        (("## Gates\n", "## Gates\nall were easy\n"), "'all were easy'", "nothing"),
        ((f"{LOST}\n", ""), "nothing", "'| lost | 1 |"),
    ],
)
def test_a_line_more_or_less_is_contradicted(run: Path, change: tuple[str, str], says: str, gives: str) -> None:
    answer = scored(run, change)
    (row,) = [row for row in answer.scorecard if row.status == "contradicted"]
    assert (
        row.claim == f"the report says {says}" and f"rendered again from the trail it says {gives}" in row.explanation
    )
    assert bool(row.evidence) == (gives != "nothing") and answer.fixes[0].delta == 5


def test_a_report_that_the_trail_does_not_record_is_none(tmp_path: Path) -> None:
    run = small_run(tmp_path, with_report=False)
    (run / "report").mkdir()
    for name in ("report.md", "report.json"):
        (run / "report" / name).write_text("{}", encoding="utf-8")
    with pytest.raises(EvidenceMissing, match="no report yet"):
        add_run(RequestReader(Masker({})), run, claims=True, rendered=rendered_again(run))


def paper(run: Path, text: str) -> AdversarialAnswer:
    reader = RequestReader(Masker({}), limits=FOR_RULES)
    reader.add_text("paper.md", text.encode(), "claims")
    evidence: list[RunEvidence] = [add_run(reader, run, claims=False)]
    return score(reader.reading, evidence)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("Accuracy was 53 %.", "supported"),
        ("Accuracy was 0.5333.", "supported"),
        ("Accuracy was 0.53.", "supported"),
        ("Accuracy: 53", "supported"),
        ("Accuracy was 0.54.", "contradicted"),
        ("Accuracy: 1", "contradicted"),
        ("Mean output tokens: 24", "supported"),
        ("Mean output tokens: 25", "contradicted"),
        ("60 gained", "contradicted"),
        ("The baseline accuracy was 0.05.", "supported"),
        ("The baseline accuracy was 0.5333.", "contradicted"),
        ("Loss drop was 0.3.", "unsupported"),
        ("Powered for a gain of 0.1.", "supported"),
        ("The gain is significant.", "supported"),
        ("There is no significant difference.", "contradicted"),
        ("gain >= 0.4", "supported"),
        ("gain >= 0.5", "contradicted"),
    ],
)
def test_a_paper_is_held_against_a_session(run: Path, text: str, status: str) -> None:
    rows = [row for row in paper(run, text).scorecard if "significant" in row.claim or "significant" not in text]
    assert [row.status for row in rows] == [status]
    best_case = paper(run, text).best_case
    assert best_case is not None and (rows[0].claim in best_case.argument) == (status == "supported")
    assert bool(rows[0].evidence) == (status != "unsupported")


def test_words_no_measurement_can_carry_are_overclaimed_unless_denied(run: Path) -> None:
    assert [
        overclaim.stated_at.first_line
        for overclaim in paper(run, "fine\nThis proves it.\nIt is not proven.").overclaimed
    ] == [2]


def test_fixes_come_in_the_order_of_delta_by_effort(run: Path) -> None:
    fixes = paper(run, "Loss drop was 0.3.\nThis proves it.\nAccuracy was 0.99.").fixes
    assert [fix.priority for fix in fixes] == [5, 2, 1.5]


def test_a_session_without_a_report_makes_no_claims(tmp_path: Path) -> None:
    run = small_run(tmp_path, closed=False, with_report=False)
    with pytest.raises(EvidenceMissing, match="no report yet"):
        add_run(RequestReader(Masker({})), run, claims=True)


def test_a_run_folder_is_reviewed_by_what_its_checks_found(tmp_path: Path) -> None:
    run = small_run(tmp_path, check={"status": "FAIL"})
    reader = RequestReader(Masker({}), limits=FOR_RULES)
    add_run(reader, run, claims=True)
    answer = review_by_rule(RuleMaterial(reader.reading, reader.sources, lambda _: True, str), "methodology")
    (issue,) = answer.issues
    assert issue.severity == "CRITICAL" and "recorded at base.1: check parity.items is FAIL" in issue.statement
    assert [str(citation) for citation in issue.evidence] == ["small/checks.json:2"]
    assert answer.best_case is not None and answer.best_case.evidence == ()
    assert CitationResolver(reader.reading).holds(issue.evidence[0])


def test_the_best_case_of_a_run_folder_by_rule_is_the_checks_that_passed(run: Path) -> None:
    reader = RequestReader(Masker({}), limits=FOR_RULES)
    add_run(reader, run, claims=True)
    best_case = review_by_rule(RuleMaterial(reader.reading, reader.sources, lambda _: True, str), "design").best_case
    assert best_case is not None
    assert best_case.argument == "By rule this holds: recorded at base.1: check parity.items is PASS."
    assert [str(citation) for citation in best_case.evidence] == ["small/checks.json:2"]


def test_held_out_rows_are_no_part_of_a_session_as_it_is_read(run: Path) -> None:
    reader = RequestReader(Masker({}))
    add_run(reader, run, claims=True)
    prompts = [json.loads(line)["prompt"] for line in (run / "heldout.jsonl").read_text(encoding="utf-8").splitlines()]
    text = "".join(file.text for file in reader.reading.files)
    assert prompts and not any(f'"{prompt}"' in text for prompt in prompts)
