"""Data files as people have them: every form, the same rows in each, and one clear error for what is none of them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.data.registered import RegisteredData, read_registered, registered_data
from specs.stages.base.artifacts import As, Example, Item, Preference
from specs.system.errors import Problem, SpecError

PAIRS = [{"prompt": f"Say {n} twice.", "completion": f"{n} {n}"} for n in ("one", "two", "three")]
JUDGED = [{"prompt": pair["prompt"], "chosen": pair["completion"], "rejected": "no idea"} for pair in PAIRS]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=40).filter(str.strip)


def json_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def table(path: Path, rows: list[dict[str, str]], delimiter: str = ",") -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def read(path: Path, result: As | None = None) -> RegisteredData:
    data = read_registered(path, result)
    assert not isinstance(data, list), data
    return data


def problems(path: Path, result: As | None = None) -> list[Problem]:
    data = read_registered(path, result)
    assert isinstance(data, list), data
    return data


def examples(data: RegisteredData) -> list[Example]:
    assert data.row_kind == "examples"
    return [Example.model_validate_json(line) for line in data.data.splitlines()]


def items(data: RegisteredData) -> list[Item]:
    assert data.row_kind in ("items", "texts")
    return [Item.model_validate_json(line) for line in data.data.splitlines()]


# ---- the same rows in every form ----------------------------------------------------------------------------


def test_every_format_registers_the_same_bytes(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet
    from datasets import Dataset

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(PAIRS), tmp_path / "rows.parquet")
    Dataset.from_list(PAIRS).save_to_disk(str(tmp_path / "saved"))
    paths = [
        json_lines(tmp_path / "rows.jsonl", PAIRS),
        table(tmp_path / "rows.csv", PAIRS),
        table(tmp_path / "semicolons.csv", PAIRS, ";"),
        table(tmp_path / "rows.tsv", PAIRS, "\t"),
        tmp_path / "rows.parquet",
        tmp_path / "saved",
    ]
    # As spreadsheets write it.
    marked = tmp_path / "marked.csv"
    marked.write_bytes(b"\xef\xbb\xbf" + (tmp_path / "rows.csv").read_bytes())
    assert len({read(path).data for path in [*paths, marked]}) == 1
    first = examples(read(paths[0]))[0]
    assert (first.prompt, first.completion, first.kind, first.sample) == ("Say one twice.", "one one", "given", 0)


def test_the_columns_people_have(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    system = {"role": "system", "content": "Be kind."}
    results = examples(read(json_lines(tmp_path / "a.jsonl", [{"messages": turns}, {"messages": [system, *turns]}])))
    assert [(row.prompt, row.completion) for row in results] == [("Hi.", "Hello.")] * 2
    assert [[turn.content for turn in row.before] for row in results] == [[], ["Be kind."]]
    requests = [{"question": "2 + 2?", "answer": "4"}]
    (two,) = examples(read(json_lines(tmp_path / "b.jsonl", requests), "examples"))
    assert (two.prompt, two.completion) == ("2 + 2?", "4")
    (three,) = items(read(json_lines(tmp_path / "c.jsonl", requests), "items"))
    assert (three.prompt, three.constraint) == ("2 + 2?", {"answer": "4"})
    (four,) = items(read(json_lines(tmp_path / "d.jsonl", [{"prompt": "Go.", "keys": "a b", "n": 2, "hard": True}])))
    assert four.constraint == {"keys": "a b", "n": 2, "hard": "true"}
    (five,) = items(read(json_lines(tmp_path / "e.jsonl", [{"text": "Once upon a time."}])))
    assert five.prompt == "Once upon a time."
    data = read(json_lines(tmp_path / "f.jsonl", JUDGED))
    pairs = [Preference.model_validate_json(line) for line in data.data.splitlines()]
    assert data.row_kind == "preferences" and {preference.source for preference in pairs} == {"given"}
    whole = [{"chosen": turns, "rejected": [turns[0], {"role": "assistant", "content": "Go away."}]}]
    (six,) = [
        Preference.model_validate_json(o) for o in read(json_lines(tmp_path / "g.jsonl", whole)).data.splitlines()
    ]
    assert (six.prompt, six.chosen, six.rejected) == ("Hi.", "Hello.", "Go away.")


USER, ASSISTANT = ([{"role": role, "content": f"{role} {n}"} for n in range(4)] for role in ("user", "assistant"))
SYSTEM = {"role": "system", "content": "Be kind."}
LONG = [SYSTEM, USER[0], ASSISTANT[0], USER[1], ASSISTANT[1]]


def test_of_a_conversation_the_last_turn_is_learned_or_every_one(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "a.jsonl", [{"messages": LONG}, {"messages": [USER[0], ASSISTANT[3]]}])
    last, short = examples(read(path))
    assert (last.prompt, last.completion) == ("user 1", "assistant 1")
    assert [turn.model_dump() for turn in last.before] == LONG[:3]
    # Conversations that begin alike stay on one side of a split.
    assert last.group == short.group and short.before == ()
    data = read_registered(path, None, "all")
    assert isinstance(data, RegisteredData) and data.turns
    every = examples(data)
    assert [(row.completion, len(row.before)) for row in every] == [
        ("assistant 0", 1),
        ("assistant 1", 3),
        ("assistant 3", 0),
    ]
    assert len({row.item for row in every}) == 3 and len({row.group for row in every}) == 1


def test_every_turn_of_rows_without_messages_is_an_error(tmp_path: Path) -> None:
    data = read_registered(json_lines(tmp_path / "a.jsonl", PAIRS), None, "all")
    assert isinstance(data, list) and "there are no `messages`" in data[0].message


def test_items_and_pairs_have_several_turns_too(tmp_path: Path) -> None:
    requests = LONG[:4]
    (item,) = items(read(json_lines(tmp_path / "a.jsonl", [{"prompt": requests, "answer": "x"}])))
    assert item.prompt == "user 1" and len(item.before) == 3 and item.constraint == {"answer": "x"}
    before = {"prompt": "user 1", "before": LONG[:3], "answer": "x"}
    assert items(read(json_lines(tmp_path / "b.jsonl", [before]), "items")) == [item]
    rejected = [*requests, {"role": "assistant", "content": "something else"}]
    (pair,) = [
        Preference.model_validate_json(line)
        for line in read(json_lines(tmp_path / "c.jsonl", [{"chosen": LONG, "rejected": rejected}])).data.splitlines()
    ]
    assert (pair.prompt, pair.chosen, len(pair.before)) == ("user 1", "assistant 1", 3)


@pytest.mark.parametrize(
    ("turns", "output"),
    [
        ([USER[0], USER[1], ASSISTANT[0]], "its turns are user, user, assistant"),
        ([ASSISTANT[0]], "its turns are assistant"),
        ([SYSTEM], "its turns are system"),
        ([USER[0], SYSTEM, ASSISTANT[0]], "its turns are user, system, assistant"),
        ([USER[0], {"role": "tool", "content": "x"}, ASSISTANT[0]], "its turns are user, tool, assistant"),
        ([USER[0], ASSISTANT[0], USER[1]], "the last turn is not the assistant's"),
    ],
)
def test_turns_out_of_order_are_reported(turns: list[dict[str, str]], output: str, tmp_path: Path) -> None:
    (problem,) = problems(json_lines(tmp_path / "a.jsonl", [{"messages": turns}]))
    assert output in problem.message and problem.keys == "messages"


def test_own_items_are_registered_byte_by_byte(tmp_path: Path) -> None:
    row = {"id": "a", "group": "g", "kind": "k", "prompt": "p", "constraint": {}}
    path = tmp_path / "items.jsonl"
    path.write_text(f"{json.dumps(row, indent=None)}  \n", encoding="utf-8")
    assert registered_data(path, None) == path.read_bytes()


def test_ids_and_groups_are_made_so_that_equal_prompts_stay_together(tmp_path: Path) -> None:
    rows = [
        {"prompt": "Say hi.", "completion": "hi"},
        {"prompt": "say  HI.", "completion": "hello"},
        {"prompt": "Say hi.", "completion": "hi"},
        {"prompt": "Say no.", "completion": "no"},
    ]
    results = examples(read(json_lines(tmp_path / "a.jsonl", rows)))
    assert len({row.item for row in results}) == 4 and results[2].item == f"{results[0].item}-2"
    assert len({row.group for row in results[:3]}) == 1 and results[3].group != results[0].group
    # The id of a row does not change with its neighbours.
    assert examples(read(json_lines(tmp_path / "b.jsonl", rows[3:])))[0].item == results[3].item


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6))
def test_any_text_comes_through_json_and_csv_alike(tmp_path_factory: pytest.TempPathFactory, pairs: Any) -> None:
    folder = tmp_path_factory.mktemp("any")
    rows = [{"prompt": pair, "completion": other} for pair, other in pairs]
    results = examples(read(json_lines(folder / "a.jsonl", rows)))
    assert [(row.prompt, row.completion) for row in results] == pairs
    assert read(table(folder / "a.csv", rows)).data == lines(results)


def lines(rows: list[Example]) -> bytes:
    return b"".join(row.model_dump_json().encode() + b"\n" for row in rows)


# ---- what is refused ----------------------------------------------------------------------------------------

PASSWD = "".join(f"user{n}:x:{n}:{n}::/home/user{n}:/bin/sh\n" for n in range(30))


@pytest.mark.parametrize(
    ("name", "data", "output"),
    [
        ("a.jsonl", b"", "the file holds no rows"),
        ("a.jsonl", b"\n\n", "the file holds no rows"),
        ("a.jsonl", b'\xef\xbb\xbf{"prompt": "a"}\n', "begins with a byte order mark (save it as UTF-8 without one)"),
        ("a.jsonl", '{"prompt": "a"}\n'.encode("utf-16"), "is UTF-16 text"),
        ("a.jsonl", b'{"prompt": "a"}\n\xff\xfe\n', "is not UTF-8 text"),
        ("a.jsonl", b"prompt,completion\na,b\n", "a table with columns, no JSON (name it .csv)"),
        ("a.jsonl", b'[{"prompt": "a"}]', "is one JSON list"),
        ("a.jsonl", PASSWD.encode(), "none of its 30 lines is JSON"),
        ("a.jsonl", b"PK\x03\x04", "is a ZIP archive (a spreadsheet?) (save it as CSV)"),
        ("a.jsonl", b"\x1f\x8b\x08", "is compressed (gzip) (unpack it: gunzip FILE)"),
        ("a.jsonl", b"PAR1", "is Parquet (name it .parquet)"),
        ("a.csv", b"", "the file holds no rows"),
        ("a.csv", b"prompt,completion\n", "a header and no rows"),
        ("a.csv", b"prompt,prompt\na,b\n", "has prompt twice"),
        ("a.csv", b"prompt,completion\na,b,c\n", "3 cells, the header has 2"),
        ("a.csv", b'prompt,completion\n"a,b\n', "not valid CSV"),
        ("a.csv", b'{"prompt": "a", "completion": "b"}\n' * 2, "holds JSON lines, not a table (name it .jsonl)"),
        ("a.parquet", b"no parquet", "not valid Parquet"),
        ("a.jsonl", b'{"input": "a", "output": "b"}\n', "its columns are input, output (if they mean that: columns: {"),
        (
            "a.jsonl",
            b'{"one": "a", "two": "b"}\n',
            "its columns are one, two (say which is which: --columns prompt=NAME,completion=NAME",
        ),
        ("a.jsonl", b'{"question": "a", "answer": "b"}\n', "`as: items` to ask and verify them"),
    ],
)
def test_a_file_that_is_something_else_is_one_error(tmp_path: Path, name: str, data: bytes, output: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    (problem,) = problems(path)
    assert output in f"{problem.message} ({problem.hint})" and problem.path == str(path), problem


@pytest.mark.parametrize(
    ("row", "output"),
    [
        ({"prompt": "", "completion": "b"}, "prompt: is empty"),
        ({"prompt": "a"}, "completion: is missing"),
        ({"prompt": ["a"], "completion": "b"}, "prompt: is not a list of messages"),
        ({"prompt": {"a": 1}, "completion": "b"}, "prompt: a dict, not text"),
        ({"messages": []}, "messages: has no turns"),
        ({"messages": [{"role": "user", "content": "a"}]}, "messages: the last turn is not the assistant's"),
        ({"messages": [{"role": "user", "content": "a"}] * 2}, "messages: its turns are user, user"),
        (3, "a int, not a JSON object"),
    ],
)
def test_a_wrong_row_is_reported_with_its_line(tmp_path: Path, row: Any, output: str) -> None:
    (problem,) = problems(json_lines(tmp_path / "a.jsonl", [PAIRS[0], row]), "examples")
    assert problem.line == 2 and output in f"{problem.keys}: {problem.message}", problem


def test_what_is_wrong_with_every_row_is_reported_once(tmp_path: Path) -> None:
    rows = table(tmp_path / "a.csv", [{"input": f"{n}", "output": "b"} for n in range(60)])
    (problem,) = problems(rows, "examples")
    message = f"{rows}:2:1: prompt: is missing, in all 60 rows; its columns are input, output (if they mean that: "
    assert str(problem).startswith(message) and "--columns prompt=input,completion=output" in problem.hint
    # Two faults, or a row that is right: each with its line.
    two = problems(json_lines(tmp_path / "b.jsonl", [{"prompt": "a"}, {"completion": "b"}]), "examples")
    three = problems(json_lines(tmp_path / "c.jsonl", [*PAIRS[:1], {"prompt": "a"}, {"prompt": "b"}]), "examples")
    assert [(item.line, item.keys) for item in two] == [(1, "completion"), (2, "prompt")]
    assert [(item.line, item.keys) for item in three] == [(2, "completion"), (3, "completion")]


def test_a_device_is_not_read() -> None:
    assert [problem.message for problem in problems(Path("/dev/zero"), "examples")] == ["not a regular file"]


def test_pairs_need_two_responses_to_one_prompt(tmp_path: Path) -> None:
    (same,) = problems(json_lines(tmp_path / "a.jsonl", [{"prompt": "a", "chosen": "bcd", "rejected": "bcd"}]))
    assert same.message == "is the chosen response"
    (empty,) = problems(json_lines(tmp_path / "b.jsonl", [{"prompt": "a", "chosen": " ", "rejected": "cde"}]))
    assert empty.keys == "chosen" and empty.message == "is empty"
    messages = [[{"role": "user", "content": name}, {"role": "assistant", "content": "yes"}] for name in ("a", "b")]
    (other,) = problems(json_lines(tmp_path / "c.jsonl", [{"chosen": messages[0], "rejected": messages[1]}]))
    assert other.message == "answers another prompt than `chosen`"


def test_a_folder_that_holds_no_rows_is_one_error(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path)
    assert problem.message == "the folder is not a saved dataset"
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}', encoding="utf-8")
    (tmp_path / "train").mkdir()
    (problem,) = problems(tmp_path)
    assert problem.hint.endswith("/train")
    (tmp_path / "train" / "state.json").write_text("{", encoding="utf-8")
    (problem,) = problems(tmp_path / "train")
    assert problem.message.startswith("the saved dataset cannot be read")


def test_all_problems_are_counted_though_few_are_shown(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        registered_data(json_lines(tmp_path / "a.jsonl", [*PAIRS[:1], *([{"prompt": "a"}] * 70)]), "examples")
    assert refused.value.hint.startswith("70 problems found")
