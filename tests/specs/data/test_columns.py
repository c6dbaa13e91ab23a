"""Columns and keys: each is read, refused by its name with a way out, or listed as ignored; none vanishes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from specs.data.columns import (
    MEANINGS,
    MESSAGE_MEANINGS,
    READS,
    TURN_WEIGHTS,
    VERDICTS,
    WEIGHTS,
    Columns,
    Selection,
    proposal,
)
from specs.data.registered import RegisteredData, read_registered
from specs.stages.base.artifacts import As, Learned
from specs.system.errors import Problem

USER = {"role": "user", "content": "What is 2 + 2?"}
ASSISTANT = {"role": "assistant", "content": "four"}
FORMS: dict[As, dict[str, Any]] = {
    "items": {"prompt": "What is 2 + 2?", "answer": "four"},
    "examples": {"prompt": "What is 2 + 2?", "completion": "four"},
    "preferences": {"prompt": "What is 2 + 2?", "chosen": "four", "rejected": "five"},
    "texts": {"text": "Two and two are four."},
}


def read(
    path: Path,
    rows: list[dict[str, Any]],
    result: As | None = None,
    columns: Columns | None = None,
    drop: tuple[str, ...] = (),
    learned: Learned = "last",
) -> RegisteredData | list[Problem]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_registered(path, result, learned, Selection(columns or {}, drop))


def registered(*values: Any, **named: Any) -> RegisteredData:
    data = read(*values, **named)
    assert isinstance(data, RegisteredData), data
    return data


def rows_of(data: RegisteredData) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.data.splitlines()]


def refused(*values: Any, **named: Any) -> Problem:
    data = read(*values, **named)
    assert isinstance(data, list) and len(data) == 1, data
    return data[0]


# An item's column named `split` is text for its verifier; everywhere else it says something.
@pytest.mark.parametrize(
    ("result", "name"),
    [
        (text, name)
        for text in ("examples", "preferences", "items")
        for name in sorted(MEANINGS)
        if (text, name) != ("items", "split")
    ],
)
def test_a_column_that_says_something_is_refused_by_its_name_unless_it_is_dropped(
    result: As, name: str, tmp_path: Path
) -> None:
    value: Any = ["something"] if name != "split" else "test"
    path, row = tmp_path / "rows.jsonl", {**FORMS[result], name: value}
    problem = refused(path, [row], result)
    assert problem.keys == name and f"drop: [{name}]" in problem.hint, problem
    dropped = registered(path, [row], result, drop=(name,))
    assert dropped.data == registered(path, [FORMS[result]], result).data and f"dropped: {name}" in dropped.notes
    # Empty, as the Hub's Parquet files have it, it says nothing.
    assert registered(path, [{**FORMS[result], name: None}], result).data == dropped.data


@pytest.mark.parametrize("name", sorted(MESSAGE_MEANINGS))
def test_a_key_of_a_message_that_says_something_is_refused_in_every_reader(name: str, tmp_path: Path) -> None:
    requests, answers = {**USER, name: ["something"]}, {**ASSISTANT, name: ["something"]}
    rows: list[tuple[As, dict[str, Any]]] = [
        ("examples", {"messages": [USER, answers]}),
        ("examples", {"messages": [requests, ASSISTANT]}),
        ("examples", {"prompt": [requests], "completion": "four"}),
        ("examples", {"prompt": [USER], "completion": [answers]}),
        ("items", {"prompt": [requests], "answer": "four"}),
        ("preferences", {"prompt": [USER], "chosen": [answers], "rejected": [{**ASSISTANT, "content": "five"}]}),
        ("preferences", {"chosen": [USER, ASSISTANT], "rejected": [USER, {**answers, "content": "five"}]}),
    ]
    for result, row in rows:
        problem = refused(tmp_path / "rows.jsonl", [row], result)
        assert problem.keys == name and f"drop: [{name}]" in problem.hint, (row, problem)
        registered(tmp_path / "rows.jsonl", [row], result, drop=(name,))


@pytest.mark.parametrize("result", list(FORMS))
def test_every_other_column_is_listed_as_ignored(result: As, tmp_path: Path) -> None:
    data = registered(tmp_path / "rows.jsonl", [{**FORMS[result], "source": "web"}, FORMS[result]], result)
    assert data.notes == (() if result == "items" else ("ignored: source",)), "a verifier reads the columns of items"
    assert (rows_of(data)[0].get("constraint") or {}).get("source") == ("web" if result == "items" else None)
    messages = [{**USER, "name": "Ana"}, ASSISTANT]
    assert registered(tmp_path / "m.jsonl", [{"messages": messages}]).notes == ("ignored: messages.name",)


@pytest.mark.parametrize("result", list(FORMS))
@pytest.mark.parametrize("name", sorted(frozenset[str]().union(*READS.values())))
def test_what_a_reader_says_it_reads_it_reads(result: As, name: str, tmp_path: Path) -> None:
    """A column of the table that changed nothing would be one that vanishes."""
    if name not in READS[result]:
        return
    values: dict[str, Any] = {
        "before": [USER, ASSISTANT],
        "messages": [USER, {**ASSISTANT, "content": "4"}] if result == "examples" else [{**USER, "content": "2 + 2?"}],
        "constraint": {"n": 3},
        "answers": ["another", "third"],
        "taught": {"families": ["other"], "student": "small"},
    }
    plain = FORMS[result]
    row = {**plain, name: values.get(name, "something else")}
    if name in ("question", "messages"):
        row.pop("prompt")
    if name in ("answer", "answers", "messages"):
        row.pop("completion", None)
        row.pop("answer", None) if name == "messages" else None
    data = read(tmp_path / "rows.jsonl", [row], result)
    assert isinstance(data, RegisteredData), data
    assert data.data != registered(tmp_path / "rows.jsonl", [plain], result).data


def test_a_column_in_whose_place_another_is_read_is_listed(tmp_path: Path) -> None:
    path, row = tmp_path / "rows.jsonl", FORMS["examples"]
    assert registered(path, [{**row, "question": "Else?", "answer": "4"}]).notes == ("ignored: answer, question",)
    assert registered(path, [{**row, "messages": [USER, ASSISTANT]}]).notes == ("ignored: completion, prompt",)
    assert registered(path, [{**FORMS["preferences"], "id": "a", "answer": "4"}]).notes == ("ignored: answer, id",)


# ---- what is honoured ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VERDICTS)
def test_rows_that_say_they_are_wrong_are_left_out_and_counted(name: str, tmp_path: Path) -> None:
    path, good = tmp_path / "rows.jsonl", FORMS["examples"]
    data = registered(path, [{**good, name: True}, {**good, "completion": "five", name: False}])
    assert [row["completion"] for row in rows_of(data)] == ["four"]
    assert data.notes == (f"1 of 2 rows are left out: `{name}` is false",)
    # A CSV of the same shape says the same.
    table = tmp_path / "rows.csv"
    table.write_text(f"prompt,completion,{name}\nWhat is 2 + 2?,four,True\nWhat is 2 + 2?,five,False\n")
    same = read_registered(table, None)
    assert isinstance(same, RegisteredData) and (same.data, same.notes) == (data.data, data.notes)
    assert "no row is left" in refused(path, [{**good, name: False}]).message
    assert refused(path, [{**FORMS["preferences"], name: False}]).keys == name
    assert refused(path, [{**FORMS["items"], name: False}]).keys == name
    # A class is none.
    assert registered(path, [{**good, name: "positive"}]).notes == (f"ignored: {name}",)


def test_a_label_of_0_or_1_may_be_either(tmp_path: Path) -> None:
    problem = refused(tmp_path / "rows.jsonl", [{**FORMS["examples"], "label": 0}])
    assert problem.keys == "label" and "may be a class" in problem.message
    registered(tmp_path / "rows.jsonl", [{**FORMS["examples"], "label": 0}], drop=("label",))


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_weight_is_0_or_1(name: str, tmp_path: Path) -> None:
    path, row = tmp_path / "rows.jsonl", FORMS["examples"]
    data = registered(path, [{**row, name: 1.0}, {**row, name: 0}])
    assert data.rows == 1 and data.notes == (f"1 of 2 rows are left out: `{name}` is 0",)
    assert refused(path, [{**row, name: 0.5}]).keys == name


@pytest.mark.parametrize("name", TURN_WEIGHTS)
def test_a_turn_that_is_not_to_be_learned_is_not_learned(name: str, tmp_path: Path) -> None:
    wrong = {"role": "assistant", "content": "five", name: 0}
    talk = [USER, wrong, {"role": "user", "content": "Again?"}, {**ASSISTANT, name: 1}]
    path = tmp_path / "rows.jsonl"
    every = rows_of(registered(path, [{"messages": talk}], learned="all"))
    assert [row["completion"] for row in every] == ["four"] and every[0]["before"][1]["content"] == "five"
    assert [row["completion"] for row in rows_of(registered(path, [{"messages": talk}]))] == ["four"]
    data = registered(path, [{"messages": [USER, wrong]}, {"messages": talk}])
    assert data.rows == 1 and data.notes == ("1 of 2 rows are left out: the weights exclude every turn from training",)
    assert "no row is left" in refused(path, [{"messages": [USER, {**wrong, name: False}]}]).message
    assert refused(path, [{"messages": [{**USER, name: True}, ASSISTANT]}]).keys == "messages"
    assert refused(path, [{"messages": [USER, {**ASSISTANT, name: 0.5}]}]).keys == name


@pytest.mark.parametrize("name", ["system", "system_prompt"])
@pytest.mark.parametrize("result", ["items", "examples", "preferences"])
def test_a_system_prompt_is_the_first_turn(result: As, name: str, tmp_path: Path) -> None:
    system = {"role": "system", "content": "Be terse."}
    (row,) = rows_of(registered(tmp_path / "rows.jsonl", [{**FORMS[result], name: "Be terse."}], result))
    assert row["before"] == [system]
    talk = {"messages": [USER, ASSISTANT], name: "Be terse."}
    same = {"messages": [system, USER, ASSISTANT], name: "Be terse."}
    assert registered(tmp_path / "a.jsonl", [talk]).data == registered(tmp_path / "a.jsonl", [same]).data
    other = {"messages": [{**system, "content": "Be kind."}, USER, ASSISTANT], name: "Be terse."}
    assert refused(tmp_path / "a.jsonl", [other]).keys == name
    # Empty, as most exports write it, it is none.
    empty = {"messages": [{**system, "content": ""}, USER, ASSISTANT], name: ""}
    plain = registered(tmp_path / "a.jsonl", [{"messages": [USER, ASSISTANT]}])
    assert registered(tmp_path / "a.jsonl", [empty]).data == plain.data


def test_each_of_several_right_answers_counts(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    expected = {"answer": "6", "answer_2": "six"}
    for answers in (
        {"answer": ["6", "six"]},
        {"answers": ["6", "six", "6"]},
        {"answers": {"text": ["6", "six"], "answer_start": [1, 9]}},
        {"answer": 6, "answer_2": "six"},
        {"answer": "6", "answers": ["six"]},
    ):
        (item,) = rows_of(registered(path, [{"question": "How many?", **answers}], "items"))
        assert {name: str(value) for name, value in item["constraint"].items()} == expected, answers
        (example,) = rows_of(registered(path, [{"question": "How many?", **answers}], "examples"))
        assert example["completion"] == "6"
    # One stays what it is, a number too.
    assert rows_of(registered(path, [{"prompt": "How many?", "answer": 6}]))[0]["constraint"] == {"answer": 6}


def test_further_right_answers_count_once_they_are_mapped(tmp_path: Path) -> None:
    path, row = tmp_path / "rows.jsonl", {"question": "What is 2 + 2?", "answer": "four", "aliases": ["four", "4"]}
    assert "columns: {answer: aliases}" in refused(path, [row], "examples").hint
    (item,) = rows_of(registered(path, [row], "items", columns={"answer": "aliases"}))
    assert item["constraint"] == {"answer": "four", "answer_2": "4"}


def test_a_pair_whose_rejected_response_has_the_better_score_is_refused(tmp_path: Path) -> None:
    pair, path = FORMS["preferences"], tmp_path / "rows.jsonl"
    for chosen, rejected in (("score_chosen", "score_rejected"), ("chosen-rating", "rejected-rating")):
        assert registered(path, [{**pair, chosen: 8, rejected: 3}]).notes == (f"ignored: {chosen}, {rejected}",)
        problem = refused(path, [{**pair, chosen: 2, rejected: 9}])
        assert problem.keys == chosen and "{chosen: rejected, rejected: chosen}" in problem.hint
        swapped = {"chosen": "rejected", "rejected": "chosen"}
        drop = (chosen, rejected)
        (row,) = rows_of(registered(path, [{**pair, chosen: 2, rejected: 9}], columns=swapped, drop=drop))
        assert (row["chosen"], row["rejected"]) == ("five", "four")
    assert registered(path, [{**pair, "margin": 1.5}]).notes == ("ignored: margin",)
    assert refused(path, [{**pair, "margin": -1.5}]).keys == "margin"
    assert registered(path, [{**pair, "tokens_chosen": 2, "tokens_rejected": 9}]).rows == 1, "no score"


def test_a_prompt_next_to_whole_conversations_is_one_of_their_turns(tmp_path: Path) -> None:
    pair = {"chosen": [USER, ASSISTANT], "rejected": [USER, {**ASSISTANT, "content": "five"}]}
    path = tmp_path / "rows.jsonl"
    assert registered(path, [{"prompt": USER["content"], **pair}]).data == registered(path, [pair]).data
    assert refused(path, [{"prompt": "Another?", **pair}]).keys == "prompt"
    assert "the row has no prompt" in refused(path, [{"chosen": "Human: a", "rejected": "Human: b"}]).message
    blank = {**FORMS["preferences"], "chosen": "It is 4", "rejected": "It is 4 "}
    assert "but for white space" in refused(path, [blank]).message
    short = {**FORMS["preferences"], "chosen": "4", "rejected": "5"}
    assert rows_of(registered(path, [short]))[0]["chosen"] == "4", "a short response is one"


def test_turns_as_other_tools_write_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    plain = registered(path, [{"messages": [USER, ASSISTANT]}])
    shared = [{"from": "human", "value": USER["content"]}, {"from": "gpt", "value": ASSISTANT["content"]}]
    assert registered(path, [{"conversations": shared}], columns={"messages": "conversations"}).data == plain.data
    parts = [{**row, "content": [{"type": "text", "text": row["content"]}]} for row in (USER, ASSISTANT)]
    assert registered(path, [{"messages": parts}]).data == plain.data
    image = [{**USER, "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, ASSISTANT]
    assert "a part of type image_url" in refused(path, [{"messages": image}]).message
    lines = [{"role": "developer", "content": "Be terse."}, USER, ASSISTANT]
    assert rows_of(registered(path, [{"messages": lines}]))[0]["before"][0]["role"] == "system"


# ---- columns: and drop: -------------------------------------------------------------------------------------


def test_columns_are_read_under_other_names(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    plain = registered(path, [FORMS["examples"]])
    named = {"Frage": "What is 2 + 2?", "Antwort": "four"}
    assert registered(path, [named], columns={"prompt": "Frage", "completion": "Antwort"}).data == plain.data
    parts = {"context": "Two and two.", "question": "How many?", "answer": "four", "empty": ""}
    columns: Columns = {"prompt": ("context", "empty", "question"), "completion": "answer"}
    (row,) = rows_of(registered(path, [parts], columns=columns))
    assert (row["prompt"], row["completion"]) == ("Two and two.\n\nHow many?", "four")
    # What takes the place of a column replaces it.
    other = {**FORMS["examples"], "prompt": "Old?", "rewritten": "What is 2 + 2?"}
    assert registered(path, [other], columns={"prompt": "rewritten"}).data == plain.data


def test_a_name_that_is_none_is_reported_with_the_likely_one(tmp_path: Path) -> None:
    data = read(
        tmp_path / "rows.jsonl", [FORMS["examples"]], "examples", columns={"promt": "prompt", "completion": "x"}
    )
    assert isinstance(data, list) and [problem.keys for problem in data] == ["columns", "columns"]
    assert "did you mean 'prompt'" in data[0].message and "no column 'x'" in data[1].message
    transcripts = read(tmp_path / "rows.jsonl", [FORMS["texts"]], "transcripts", drop=("a",))
    assert isinstance(transcripts, list) and "transcripts have no columns" in transcripts[0].message


@pytest.mark.parametrize(
    ("columns", "mapping"),
    [
        ("prompt response", "completion=response"),
        ("Prompt Completion", "completion=Completion,prompt=Prompt"),
        ("instruction input output text", "completion=output,prompt=instruction+input"),
        ("conversations id", "messages=conversations"),
        ("text label", "completion=label,prompt=text"),
        (
            "instruction chosen_response rejected_response",
            "chosen=chosen_response,prompt=instruction,rejected=rejected_response",
        ),
        ("text", ""),
        ("a b", ""),
        ("prompt completion", ""),
    ],
)
def test_the_likely_mapping_is_proposed_and_does_what_it_says(columns: str, mapping: str, tmp_path: Path) -> None:
    text = proposal(columns.split())
    _, _, option = text.partition("--columns ")
    assert ",".join(sorted(option.removesuffix(")").split(","))) == mapping
    if mapping and "conversations" not in columns:
        row = {name: f"some {name}" for name in columns.split()}
        parts = dict(part.split("=") for part in mapping.split(","))
        data = registered(
            tmp_path / "rows.jsonl", [row], columns={name: tuple(source.split("+")) for name, source in parts.items()}
        )
        assert data.rows == 1 and data.row_kind in ("examples", "preferences")


def test_rows_of_one_file_may_lack_a_column_in_the_first(tmp_path: Path) -> None:
    problem = refused(tmp_path / "rows.jsonl", [{"prompt": "a"}, FORMS["examples"]])
    assert (problem.line, problem.keys, problem.message) == (1, "completion", "is missing")


def test_a_generated_id_never_equals_a_declared_id(tmp_path: Path) -> None:
    rows = [{"id": id, "prompt": f"Say {n}.", "answer": "a"} for n, id in enumerate(("x", "x", "x-2", "x-2"))]
    ids = [row["id"] for row in rows_of(registered(tmp_path / "rows.jsonl", rows))]
    assert len(set(ids)) == 4 and ids[0] == "x"


def test_a_table_lists_the_index_that_pandas_writes(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["", "prompt", "completion"], [0, "a?", "b"], [1, "c?", "d"]])
    data = read_registered(path, None)
    assert isinstance(data, RegisteredData) and data.notes == ("ignored: (unnamed index)",)
