from __future__ import annotations

import json
from pathlib import Path

import pytest

from specs.loading.loading import find_spec, load_constitution, load_spec
from specs.loading.stored_spec import read_resolved
from specs.stages.finetuning.parameters import SftParameters
from specs.system.digests import digest_file
from specs.system.errors import AuditDamage, SpecError, UserError
from testing.factories.spec_files import CONSTITUTION, items, list_problems, loads, problems_of, write_spec


def test_a_valid_spec_is_resolved_with_everything_it_names_pinned(tmp_path: Path) -> None:
    resolved = loads(write_spec(tmp_path))
    assert resolved.spec.name == "small"
    assert resolved.constitution_digest == digest_file(tmp_path / "constitution.yaml")
    assert resolved.data_digests == {
        "heldout": digest_file(tmp_path / "heldout.jsonl"),
        "prompts": digest_file(tmp_path / "prompts.jsonl"),
    }
    assert resolved.origin == str(tmp_path.resolve())


def test_numbers_are_read_by_yaml_1_2(tmp_path: Path) -> None:
    stage = loads(write_spec(tmp_path)).spec.stage("train")
    assert stage.parameters.model_dump()["learning_rate"] == 1e-5


UNREAD = ("path: prompts.jsonl", "path: 2026-01-01")
AGAINST_THE_SCHEMA = (
    ("kind: instruct", "kind: chat"),
    ("machine_usd_per_hour: 2.0", 'machine_usd_per_hour: "2.0"'),
    ("low\n      criteria", "low\n      critera"),
    ("learning_rate: 1e-5, epochs: 2", "learning_rate: 3, epohcs: 2"),
    ("kind: package", "kind: pakage"),
)
AGAINST_THE_RULES = (
    ("  n: 3", "  n: 4"),
    ("baseline: base", "baseline: bass"),
    ("prompts: data.prompts", "prompts: data.promts"),
    ("metric: accepted,", "metric: acepted,"),
    ("metric: loss_drop", "metric: accuracy"),
)


def test_what_cannot_be_read_is_reported_first(tmp_path: Path) -> None:
    assert list_problems(write_spec(tmp_path, UNREAD, *AGAINST_THE_SCHEMA, *AGAINST_THE_RULES)) == [
        "18:19: data.prompts.path: 2026-01-01 would be read as a date (quote it: '2026-01-01')"
    ]


def test_everything_against_the_schema_is_reported_in_one_go_and_before_the_rules(tmp_path: Path) -> None:
    assert list_problems(write_spec(tmp_path, *AGAINST_THE_SCHEMA, *AGAINST_THE_RULES)) == [
        "6:47: model.kind: kind must be 'base' or 'instruct', got 'chat'",
        "11:25: budget.machine_usd_per_hour: machine_usd_per_hour must be a number, got '2.0'"
        " (write it without quotes and without '_')",
        "42:7: stages[1].gate.critera: stage 'sample': unknown key 'critera' (did you mean 'criteria'?)",
        "48:33: stages[2].parameters.learning_rate: stage 'train': learning_rate must be at most 1, got 3",
        "48:36: stages[2].parameters.epohcs: stage 'train': unknown key 'epohcs' (did you mean 'epochs'?)",
        "61:11: stages[4].kind: stage 'ship': unknown kind 'pakage' (did you mean 'package'?)",
    ]


def test_everything_against_the_rules_and_files_is_reported_in_one_go(tmp_path: Path) -> None:
    assert list_problems(write_spec(tmp_path, *AGAINST_THE_RULES)) == [
        "22:6: analysis.n: n is 4, 'heldout.jsonl' holds 3 items (write n: 3)",
        "24:13: analysis.baseline: unknown stage 'bass' (did you mean 'base'?)",
        "36:37: stages[1].inputs.prompts: stage 'sample': unknown data file 'promts' (did you mean 'prompts'?)",
        "44:20: stages[1].gate.criteria[1].metric: stage 'sample': unknown metric 'acepted' (did you mean 'accepted'?"
        " measured here: samples, accepted, acceptance_rate, accepted_kinds, accepted_min_kind,"
        " generate_truncation_rate, duplicate_rate, generate_empty_rate, generate_runaway_rate, generate_leak_rate,"
        " generate_repeat_rate)",
        "55:20: stages[2].gate.criteria[0].metric: stage 'train': 'accuracy' is measured by evaluate stages, this"
        " one is sft (measured here: steps, train_tokens, first_loss, last_loss, loss_drop, max_grad_norm)",
    ]


def test_one_mistake_has_no_second_problem_in_its_wake(tmp_path: Path) -> None:
    # The name of 'sample' is gone, so nothing may be said about references to it.
    assert len(list_problems(write_spec(tmp_path, ("name: sample", "name: [sample]")))) == 1
    assert len(list_problems(write_spec(tmp_path, ("kind: generate", "kind: distil")))) == 1
    assert len(list_problems(write_spec(tmp_path, ("at_most: 0.5", "minimum: 0.5")))) == 1
    assert len(list_problems(write_spec(tmp_path, ("seeds: [7]", "seeds: [seven]")))) == 1
    assert len(list_problems(write_spec(tmp_path, ("treatment: tuned", "treatment: 4")))) == 1
    assert len(list_problems(write_spec(tmp_path, ("prompts: {path", "Prompts: {path")))) == 1
    assert len(list_problems(write_spec(tmp_path, ("stages:", "stages: 3\nstagess:")))) == 2
    moved = ("    max_minutes: 30\n", "    max_minutes: 30\n    learning_rate: 1e-5\n")
    assert len(list_problems(write_spec(tmp_path, ("learning_rate: 1e-5, epochs: 2", "epochs: 2"), moved))) == 1


def test_a_misspelt_section_is_one_problem(tmp_path: Path) -> None:
    assert list_problems(write_spec(tmp_path, ("analysis:", "analysys:"), ("alpha: 0.05", "alpha: 5"))) == [
        "19:1: analysys: unknown key 'analysys' (did you mean 'analysis'?)"
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: small", "name: small\nname: again", "3:1: name: key 'name' is given twice, first on line 2"),
        ("name: small", "name: &n small", "2:7: name: anchors ('&n') are not read"),
        ("name: small", "name: !!python/name:os.system small", "2:7: name: tags ("),
        ("name: small", "name: *n", "2:7: name: aliases ('*name') are not read"),
        ("name: small", "name: small\n<<: {a: 1}", "3:1: '<<': merge keys ('<<') are not read"),
        ("name: small", "name: small\n5: 1", "3:1: 5: a key must be text, got 5"),
        ("alpha: 0.05", "alpha: .nan", "20:10: analysis.alpha: .nan is not a number a spec can hold"),
        ("alpha: 0.05", "alpha: 1e999", "20:10: analysis.alpha: 1e999 is too large for a number"),
        ("  n: 3", "  n: 9007199254740992", "22:6: analysis.n: 9007199254740992 is too large"),
        ("  n: 3", "  n: true", "22:6: analysis.n: n must be a whole number, got true"),
        ("  n: 3", "  n: 3.0", "22:6: analysis.n: n must be a whole number, got 3.0"),
        ("alpha: 0.05", "alpha: '0.05'", "20:10: analysis.alpha: alpha must be a number, got '0.05'"),
        ("name: small", "name: [", "4:5: not valid YAML"),
        ("name: small", "name: a: b", "2:8: not valid YAML: mapping values are not allowed here"),
        ("name: small", 'name: "\\uD800"', "2:7: name: the text holds a NUL character or half of a character pair"),
        ("name: small", "name: {{ name }}", "2:8: a key must be text, found a mapping or list"),
        ("  - name: base", "  - nmae: base", "27:5: stages[0].nmae: unknown key 'nmae' (did you mean 'name'?)"),
        ("    max_minutes: 30\n", "    epochs: 1\n", "51:5: stages[2].epochs: stage 'train': unknown key 'epochs'"),
        ("{vendor: checklist}", "{vendor: playbook}", "8:20: reviewer.vendor: 'playbook' acts"),
        ("{vendor: playbook}", "{vendor: checklist}", "7:19: builder.vendor: 'checklist' judges"),
        ("digest: HELDOUT", "digest: abc", "16:11: heldout.digest: digest must be a digest: 'sha256:'"),
    ],
)
def test_one_mistake_is_one_problem_at_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    results = list_problems(write_spec(tmp_path, (old, new)))
    assert len(results) == 1, results
    assert results[0].startswith(expected)


def test_a_sentence_of_a_validator_is_reported_as_it_is(tmp_path: Path) -> None:
    adapters = "method: lora, lora_rank: 2, lora_alpha: 4, lora_dropout: 0, target_modules: [q_proj]"
    old = "parameters: {learning_rate: 1e-5, epochs: 2, seed: 7}"
    new = f"parameters: {{{adapters}, distributed: {{replicas: 4, sync_every: 2, min_replicas: 2}}}}"
    (problem,) = list_problems(write_spec(tmp_path, (old, new)))
    assert problem.split(" ", 1)[1] == (
        "stages[2].parameters.distributed: stage 'train': distributed: min_replicas is 2: of 4 replicas it must be 3 "
        "to 4, or two halves could each train their own model"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "method: qlora, precision: bfloat16, device: cpu, lora_rank: 2, lora_alpha: 4, lora_dropout: 0, "
            "target_modules: [q_proj]",
            "distributed needs weights that are not of 4 bits, method is 'qlora'",
        ),
        ("snapshot_steps: 3", "snapshot_steps has no effect with distributed"),
        ("packing: true", "packing makes shards of different lengths"),
    ],
)
def test_what_replicas_cannot_do_is_one_problem(tmp_path: Path, text: str, why: str) -> None:
    old = "parameters: {learning_rate: 1e-5, epochs: 2, seed: 7}"
    new = f"parameters: {{{text}, distributed: {{replicas: 2, sync_every: 2}}}}"
    (problem,) = list_problems(write_spec(tmp_path, (old, new)))
    assert why in problem


def test_full_weights_of_replicas_leave_snapshots() -> None:
    parameters = SftParameters.model_validate({"distributed": {"replicas": 2, "sync_every": 4}})
    assert parameters.leaves_snapshots and parameters.snapshots_of(10) == (4, 8)
    assert not SftParameters().leaves_snapshots and SftParameters().snapshots_of(10) == ()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "the file is empty"),
        (b"# nothing\n", "the file is empty"),
        (b"- a\n- b\n", "the top level must hold keys and values, found a list"),
        (b"text", "the top level must hold keys and values, found a single value"),
        (b"name: \xff", "the file is not UTF-8: byte 0xff cannot be read"),
        (b"\xef\xbb\xbfname: x", "the file starts with a byte order mark"),
        (b"\xff\xfen\x00", "the file starts with a byte order mark"),
        (b"name: a\x00b", "the file holds a NUL byte"),
        (b"name: a\x07b", "control character U+0007 is not allowed in YAML"),
        (b"a: 1\n---\nb: 2\n", "the file holds more than one YAML document"),
        (b"%YAML 1.1\n---\na: 1\n", "YAML directives (%YAML, %TAG) are not read"),
        (b"a: " + b"[" * 40, "nested more than 24 levels deep"),
        (b"a: [" + b"1," * 60_000 + b"]", "the file holds more than 50000 values"),
        (b"#" * (1 << 20) + b"\n", "the file has 1048577 bytes, the limit is 1048576"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(raw)
    assert [problem.message for problem in problems_of(path)] == [message]


def test_what_a_file_says_cannot_steer_the_terminal(tmp_path: Path) -> None:
    (problem,) = problems_of(write_spec(tmp_path, ("path: prompts.jsonl", 'path: "\\e[2Jgone\\n"')))
    assert problem.message == "file '\\x1b[2Jgone\\n' does not exist"
    (problem,) = problems_of(write_spec(tmp_path, ("name: small", f"name: small\n{'k' * 100_000}: 1")))
    assert len(problem.message) < 1100


def test_a_spec_that_is_not_there_is_a_user_error_not_a_spec_error(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(UserError) as caught:
            load_spec(path)
        assert not isinstance(caught.value, SpecError)


def test_missing_files_are_reported_at_the_key_that_names_them(tmp_path: Path) -> None:
    path = write_spec(tmp_path)
    for name in ("constitution.yaml", "heldout.jsonl", "prompts.jsonl"):
        (tmp_path / name).unlink()
    assert [(problem.keys, problem.line, problem.message) for problem in problems_of(path)] == [
        ("constitution", 5, "file 'constitution.yaml' does not exist"),
        ("heldout.path", 15, "file 'heldout.jsonl' does not exist"),
        ("data.prompts.path", 18, "file 'prompts.jsonl' does not exist"),
    ]


def test_missing_data_can_be_allowed_and_the_registered_digest_stands_in(tmp_path: Path) -> None:
    path = write_spec(tmp_path)
    digest = digest_file(tmp_path / "heldout.jsonl")
    (tmp_path / "heldout.jsonl").unlink()
    (tmp_path / "prompts.jsonl").unlink()
    assert load_spec(path, allow_missing_data=True).data_digests == {"heldout": digest}
    (tmp_path / "constitution.yaml").unlink()
    with pytest.raises(SpecError, match=r"file 'constitution\.yaml' does not exist"):
        load_spec(path, allow_missing_data=True)


def test_a_changed_held_out_split_is_refused_with_both_digests(tmp_path: Path) -> None:
    path = write_spec(tmp_path)
    registered = digest_file(tmp_path / "heldout.jsonl")
    (tmp_path / "heldout.jsonl").write_text(items("x", 3), encoding="utf-8")
    (problem,) = problems_of(path)
    assert problem.keys == "heldout.digest"
    assert registered in problem.message
    assert digest_file(tmp_path / "heldout.jsonl") in problem.message


def test_a_copy_of_the_held_out_split_cannot_be_training_data(tmp_path: Path) -> None:
    path = write_spec(tmp_path)
    (tmp_path / "prompts.jsonl").write_bytes((tmp_path / "heldout.jsonl").read_bytes())
    (problem,) = problems_of(path)
    assert problem.keys == "data.prompts.path"
    assert "is a copy of the held-out split" in problem.message


def test_every_bad_line_of_a_data_file_is_named(tmp_path: Path) -> None:
    path = write_spec(tmp_path)
    good = json.loads(items("p", 1))
    lines = [
        json.dumps(good),
        json.dumps(good),
        '{"id": "a",}',
        "",
        json.dumps({**good, "id": 4}),
        json.dumps({**good, "id": "b", "constraint": {"n": True}}),
        json.dumps({**good, "id": "c", "promt": "x"}),
        "[]",
    ]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    problems = problems_of(path)
    assert {problem.path for problem in problems} == {str(tmp_path / "prompts.jsonl")}
    assert [(problem.line, problem.keys, problem.message) for problem in problems] == [
        (2, "id", "id 'p0' is already used on line 1"),
        (3, "", problems[1].message),
        (4, "", "the line is empty"),
        (5, "id", "id must be text, got 4"),
        (6, "constraint.n", "must be text or a whole number"),
        (7, "promt", "unknown key 'promt'"),
        (8, "", "the value must be keys and values, got a list"),
    ]
    assert problems[1].message.startswith("not valid JSON")


def test_a_thousand_bad_lines_are_counted_not_listed(tmp_path: Path) -> None:
    path = write_spec(tmp_path)
    with (tmp_path / "prompts.jsonl").open("a", encoding="utf-8") as file:
        file.write("x\n" * 1000)
    with pytest.raises(SpecError) as refused:
        load_spec(path)
    problems = refused.value.problems
    assert len(problems) == 21
    assert problems[-1].message == "and 980 more problems from this line on"
    assert refused.value.hint.startswith("1000 problems found")


def test_problems_of_the_constitution_name_the_constitution(tmp_path: Path) -> None:
    path = write_spec(tmp_path)
    counted = CONSTITUTION.replace("principles: 2", "principles: 3")
    for text, place in (
        (counted.replace("category: honesty", "category: Honesty"), (8, 15, "principles[0].category")),
        (counted, (4, 15, "totals.principles")),
    ):
        (tmp_path / "constitution.yaml").write_text(text, encoding="utf-8")
        (problem,) = problems_of(path)
        assert (Path(problem.path).name, (problem.line, problem.column, problem.keys)) == ("constitution.yaml", place)


def test_a_constitution_loads_with_the_digest_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "constitution.yaml"
    path.write_text(CONSTITUTION, encoding="utf-8")
    constitution, digest = load_constitution(path)
    assert len(constitution.principles) == 2
    assert digest == digest_file(path)


def test_the_projects_own_constitution_is_valid() -> None:
    assert load_constitution(Path(__file__).parents[3] / "constitution.yaml")[0].principles


def test_a_resolved_spec_reads_back_equal_and_strictly(tmp_path: Path) -> None:
    resolved = loads(write_spec(tmp_path))
    saved = resolved.canonical()
    assert read_resolved(saved) == resolved
    assert read_resolved(saved.decode()).registration() == resolved.registration()
    for spoilt in (saved[:-1], saved.replace(b'"n":3', b'"n":"3"'), b"{}", b"", b"\xff"):
        with pytest.raises(AuditDamage):
            read_resolved(spoilt)


def test_the_registration_does_not_depend_on_the_folder_or_on_layout(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = loads(write_spec(tmp_path / "a"))
    second = loads(write_spec(tmp_path / "b", ("name: small", "# a comment\nname:   'small'")))
    third = loads(write_spec(tmp_path / "b", ("alpha: 0.05", "alpha: 0.04")))
    assert first.registration() == second.registration() != third.registration()


def test_find_spec_prefers_an_existing_file_and_lists_shipped_names_otherwise(tmp_path: Path) -> None:
    path = write_spec(tmp_path)
    assert find_spec(str(path)) == path
    for text in ("no-such-spec", str(tmp_path), "a\x00b", "x" * 5000, "../etc/passwd"):
        with pytest.raises(UserError) as caught:
            find_spec(text)
        assert "shipped specs: " in str(caught.value.hint)


def test_a_folder_stands_for_the_spec_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"there is no experiment\.yaml in this folder"):
        find_spec(".")
    write_spec(tmp_path).rename(tmp_path / "experiment.yaml")
    assert find_spec(".").resolve() == find_spec(str(tmp_path)) == tmp_path / "experiment.yaml"
    # A shipped spec keeps its name next to a folder that holds none; a device is not a spec.
    (tmp_path / "demo").mkdir()
    assert find_spec("demo").name == "demo.yaml"
    with pytest.raises(UserError, match="'/dev/null' is not a file") as caught:
        find_spec("/dev/null")
    assert "did you mean" not in str(caught.value.hint)


def test_find_spec_finds_a_shipped_spec_by_bare_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "specs" / "library"
    library.mkdir(parents=True)
    shipped = write_spec(library).rename(library / "demo.yaml")
    monkeypatch.setattr("specs.loading.loading.HOME", tmp_path)
    assert find_spec("demo") == shipped
    with pytest.raises(UserError, match=r"did you mean 'demo'\? shipped specs: demo"):
        find_spec("dmeo")
