"""The stages that write text, on models of two layers: rows, what is kept, seeds, and going on after a kill."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from specs.stages.base.artifacts import Example, Item
from specs.stages.base.stage import Kind
from specs.stages.generation.parameters import SelfInstructParameters
from specs.stages.generation.rows import BaseModelCheckRow, SampleResponsesRow, SelfInstructRow
from specs.stages.registry import STAGE_KINDS
from testing.fixtures.small_text import list_writer, seed_items, small_model
from testing.fixtures.stage_jobs import stage_job
from testing.fixtures.tiny_training import write_lines
from testing.fixtures.witnessed_jobs import unwritten, witnessed
from training.engines.checkpoint import load, save
from training.jobs.generation.base_model_check import check_base_model
from training.jobs.generation.sample_responses import respond
from training.jobs.generation.self_instruct import instruct
from training.jobs.job import Job, StageResult
from training.jobs.witness.prompted_answers import UnusableRow
from training.rules.generation.instruction_harvest import harvest
from training.rules.generation.sentinels import SENTINELS
from training.rules.prompt_encoding import EncodingFault
from training.rules.prompt_text import ExampleInstruction

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]


STAGES = {"base_model_check": check_base_model, "self_instruct": instruct, "sample_responses": respond}
SMALL = {"examples_per_prompt": 3, "per_call": 3, "calls_per_round": 4, "max_new_tokens": 50, "temperature": 0.7}


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return list_writer(tmp_path_factory.mktemp("writer"))


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("chatty") / "model", chat=True)


def job(
    folder: Path,
    kind: Kind,
    inputs: dict[str, Path],
    model_kind: Literal["base", "instruct"] | None = "base",
    **parameters: Any,
) -> Job:
    return stage_job(folder, kind, inputs, model_kind, **parameters)


def seeds(folder: Path, count: int = 6) -> Path:
    return write_lines(folder / "seeds.jsonl", [item.model_dump() for item in seed_items(count)])


def read(path: Path, model: Any) -> list[Any]:
    return [model.model_validate_json(line) for line in path.read_text(encoding="utf-8").splitlines()]


def run(folder: Path, kind: Kind, inputs: dict[str, Path], **settings: Any) -> tuple[StageResult, Job]:
    made = job(folder, kind, inputs, **settings)
    return STAGES[kind](made), made


class Written(NamedTuple):
    """What a self_instruct stage left."""

    done: StageResult
    folder: Path
    rows: list[SelfInstructRow]
    items: list[Item]

    @property
    def work(self) -> list[SelfInstructRow]:
        return [row for row in self.rows if row.probe == 0]


def written(folder: Path, writer: Path, **parameters: Any) -> Written:
    inputs = {"model": writer, "seeds": seeds(folder)}
    done, made = run(folder / "job", "self_instruct", inputs, **(SMALL | parameters))
    rows, items = read(made.out / "rows.jsonl", SelfInstructRow), read(made.out / "instructions.jsonl", Item)
    return Written(done, folder / "job", rows, items)


WHOLE = {"shards": 2, "target": 48, "over_generation": 1, "max_rounds": 2, "seed": 2}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, writer: Path) -> Written:
    return written(tmp_path_factory.mktemp("whole"), writer, **WHOLE)


def test_a_base_model_writes_new_instructions(whole: Written) -> None:
    assert len(whole.items) >= 6 and {row.form for row in whole.rows} == {"completion"}
    # The first item of an answer is not lost, and the stop after the last one cut the rest.
    first = {f"s{row.shard}-r{row.round}-c{row.call}-n1" for row in whole.work}
    assert first & {item.id for item in whole.items}
    assert Counter(row.finish for row in whole.work)["stop"] > 0
    assert all(f"\n{row.first + 3}." not in row.raw for row in whole.work)
    granted = STAGE_KINDS["self_instruct"].parameters().model_dump(mode="json").keys()
    assert granted <= whole.done.effective.keys() and whole.done.effective["temperature"] == 0.7


def test_what_was_found_is_shown_from_the_next_round_on(whole: Written) -> None:
    for row in whole.work:
        new = [id for id in row.examples if not id.startswith("seed")]
        assert len(new) == (1 if row.round else 0)
        assert all(id.startswith(f"s{row.shard}-") and int(id.split("-r")[1][0]) < row.round for id in new)


def test_probes_repeat_with_their_seed_and_differ_with_another(whole: Written) -> None:
    by_probe = [[row.raw for row in whole.rows if row.probe == number] for number in (1, 2, 3)]
    assert len(by_probe[0]) == 3 and by_probe[0] == by_probe[1] != by_probe[2]


def test_the_seed_decides_what_is_written(tmp_path: Path, writer: Path, whole: Written) -> None:
    again = written(tmp_path / "again", writer, **(WHOLE | {"shards": 1, "max_rounds": 1}))
    other = written(tmp_path / "other", writer, **(WHOLE | {"shards": 1, "max_rounds": 1, "seed": 3}))
    first = [row.raw for row in whole.work if (row.shard, row.round) == (0, 0)]
    assert [row.raw for row in again.work] == first != [row.raw for row in other.work]


def test_shards_have_seeds_of_their_own_and_share_no_instruction(whole: Written) -> None:
    assert len({row.seed for row in whole.work}) == 4 and {row.shard for row in whole.work} == {0, 1}
    assert len({item.prompt for item in whole.items}) == len(whole.items)
    instructions = [ExampleInstruction(item.id, item.prompt) for item in seed_items(6)]
    again = harvest(whole.rows, instructions, SelfInstructParameters.model_validate(SMALL | WHOLE))
    assert list(again.items) == whole.items
    # Shards of one small model repeat each other; without the merge the repeats would be kept.
    assert sum(item.outcome == "cross_shard" for item in again.fated) > 0


def test_a_stage_that_was_killed_goes_on_to_the_same_rows(tmp_path: Path, writer: Path, whole: Written) -> None:
    files = sorted((whole.folder / "shards").iterdir())
    content = [path.read_bytes() for path in files]
    for name, row in (("early", [content[0][: len(content[0]) // 2]]), ("late", [content[0], content[1][:-40]])):
        folder = tmp_path / name / "job" / "shards"
        folder.mkdir(parents=True)
        for path, part in zip(files, row, strict=False):
            (folder / path.name).write_bytes(part)
        written(tmp_path / name, writer, **WHOLE)
        for output in ("rows.jsonl", "instructions.jsonl"):
            assert (folder.parent / "out" / output).read_bytes() == (whole.folder / "out" / output).read_bytes()


def test_a_shard_that_repeats_itself_ends_the_stage_early(tmp_path: Path, writer: Path) -> None:
    broken = {"shards": 3, "target": 900, "max_rounds": 9, "abort_after": 6, "abort_repeats": 0.1, "similarity": 0.5}
    rows = written(tmp_path, writer, **broken).rows
    assert {row.shard for row in rows} == {0} and max(row.round for row in rows) < 8


def test_an_instruct_model_is_given_its_template(tmp_path: Path, chatty: Path) -> None:
    inputs = {"model": chatty, "seeds": seeds(tmp_path)}
    _, made = run(tmp_path / "job", "self_instruct", inputs, model_kind="instruct", **SMALL, max_rounds=1)
    rows = read(made.out / "rows.jsonl", SelfInstructRow)
    assert {row.form for row in rows} == {"chat"} and {row.first for row in rows} == {1}
    assert all(row.prompt.startswith("<|start|>user\n") and "from 1 to 3" in row.prompt for row in rows)


def test_an_order_without_the_kind_of_model_writes_nothing(tmp_path: Path, chatty: Path) -> None:
    with pytest.raises(ValueError, match="does not say whether the model is a base model"):
        run(tmp_path / "job", "self_instruct", {"model": chatty, "seeds": seeds(tmp_path)}, model_kind=None, **SMALL)


def test_a_template_token_in_a_seed_stops_a_base_model_before_it_writes(tmp_path: Path, writer: Path) -> None:
    poisoned = [item.model_dump() | {"prompt": "tell <|start|>assistant a tale"} for item in seed_items(3)]
    inputs = {"model": writer, "seeds": write_lines(tmp_path / "seeds.jsonl", poisoned)}
    with pytest.raises(EncodingFault, match="special token"):
        run(tmp_path / "job", "self_instruct", inputs, **SMALL)
    assert not (tmp_path / "job" / "out" / "rows.jsonl").exists()


def answered(
    folder: Path, model: Path, **settings: Any
) -> tuple[StageResult, Job, list[SampleResponsesRow], list[Example]]:
    inputs = {"model": model, "instructions": seeds(folder, 7)}
    arguments = {"max_new_tokens": 16, "shard_size": 3, "samples_per_instruction": 2, "temperature": 0.9} | settings
    done, made = run(folder / "job", "sample_responses", inputs, **arguments)
    return done, made, read(made.out / "rows.jsonl", SampleResponsesRow), read(made.out / "examples.jsonl", Example)


def test_every_sample_of_every_instruction_has_a_row_and_clean_ones_are_kept(tmp_path: Path, writer: Path) -> None:
    done, _, rows, examples = answered(tmp_path, writer)
    assert Counter((row.item, row.sample) for row in rows) == Counter((f"seed{n}", s) for n in range(7) for s in (0, 1))
    assert {row.shard for row in rows} == {0, 1, 2} and len({row.seed for row in rows}) == 3
    selected = {(example.item, example.sample) for example in examples}
    assert selected <= {(row.item, row.sample) for row in rows if not row.marks}
    assert all(row.prompt.endswith(f"Instruction: {row.instruction}\nResponse:") for row in rows)
    assert all(row.finish != "length" or "token_limit" in row.marks for row in rows)
    granted = STAGE_KINDS["sample_responses"].parameters().model_dump(mode="json").keys()
    assert granted <= done.effective.keys() and done.effective["max_new_tokens"] == 16


def test_answers_that_were_interrupted_come_out_the_same(tmp_path: Path, writer: Path) -> None:
    _, whole, _, _ = answered(tmp_path / "whole", writer)
    content = (whole.folder / "shards" / "answers.jsonl").read_bytes()
    folder = tmp_path / "cut" / "job" / "shards"
    folder.mkdir(parents=True)
    (folder / "answers.jsonl").write_bytes(content[: len(content) * 2 // 3])
    _, cut, _, _ = answered(tmp_path / "cut", writer)
    for name in ("rows.jsonl", "examples.jsonl"):
        assert (cut.out / name).read_bytes() == (whole.out / name).read_bytes()


def test_only_the_first_instructions_of_a_pilot_are_answered(tmp_path: Path, writer: Path) -> None:
    _, _, rows, _ = answered(tmp_path, writer, max_instructions=2, samples_per_instruction=1)
    assert [row.item for row in rows] == ["seed0", "seed1"]


def test_answers_that_run_away_end_the_stage_early(tmp_path: Path, writer: Path) -> None:
    long = {"max_new_tokens": 250, "stops": [], "cleaning": ["strip"], "abort_after": 3, "abort_runaway": 0.0}
    _, made, rows, examples = answered(tmp_path, writer, samples_per_instruction=1, **long)
    assert len(rows) == 3 and examples == []
    assert (made.folder / "progress.jsonl").exists()


def test_the_guard_writes_down_both_models_in_both_forms(tmp_path: Path, writer: Path, chatty: Path) -> None:
    inputs = {"model": writer, "control": chatty}
    done, made = run(tmp_path / "job", "base_model_check", inputs, max_new_tokens=8)
    rows = read(made.out / "rows.jsonl", BaseModelCheckRow)
    parts = Counter((row.model, row.form) for row in rows)
    count = len(SENTINELS)
    assert parts == {("declared", "completion"): count, ("control", "completion"): count, ("control", "chat"): count}
    bare = [row for row in rows if row.form == "completion"]
    assert all(row.ids == row.ids_with_special and row.decoded == row.prompt and not row.template_ids for row in bare)
    assert all(row.template_ids for row in rows if row.form == "chat")
    assert done.effective["model_kind"] == "base"


def test_a_template_forced_into_the_tokenizer_shows_in_the_guards_rows(tmp_path: Path, chatty: Path) -> None:
    forced = tmp_path / "forced"
    shutil.copytree(chatty, forced)
    path = forced / "tokenizer.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    ids = {token["content"]: token["id"] for token in raw["added_tokens"]}
    # What a tokenizer with a template in its post-processor is: every text gets tokens before and after it.
    raw["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|start|>": {"id": "<|start|>", "ids": [ids["<|start|>"]], "tokens": ["<|start|>"]}},
    }
    path.write_text(json.dumps(raw), encoding="utf-8")
    _, made = run(tmp_path / "job", "base_model_check", {"model": forced, "control": chatty}, max_new_tokens=2)
    rows = read(made.out / "rows.jsonl", BaseModelCheckRow)
    declared = [row for row in rows if row.model == "declared" and row.form == "completion"]
    assert all(len(row.ids_with_special) == len(row.ids) + 1 for row in declared)
    # And a stage refuses to write with it.
    with pytest.raises(EncodingFault, match="adds special tokens"):
        run(tmp_path / "write", "self_instruct", {"model": forced, "seeds": seeds(tmp_path)}, **SMALL)


LOW = {"shards": 2, "target": 400, "max_rounds": 9, "abort_repeats": 1, "quality": {"first": 6, "repeated": 0.0}}


def test_calls_that_are_no_good_end_the_stage_early_and_again_at_the_same_row(tmp_path: Path, writer: Path) -> None:
    seen = {"examples_per_prompt": 3, "growing": False, "temperature": 0.01, "similarity": 1.0}
    result = written(tmp_path / "whole", writer, **(LOW | seen))
    assert {row.shard for row in result.rows} == {0} and len(result.work) == 8
    assert "rows repeat an earlier row, more than 0" in result.done.facts["broken_off"]
    content = (result.folder / "shards" / "0000.jsonl").read_bytes()
    folder = tmp_path / "cut" / "job" / "shards"
    folder.mkdir(parents=True)
    (folder / "0000.jsonl").write_bytes(content[: len(content) * 3 // 4])
    again = written(tmp_path / "cut", writer, **(LOW | seen))
    assert (folder / "0000.jsonl").read_bytes() == content and again.rows == result.rows
    assert again.done.facts["broken_off"] == result.done.facts["broken_off"]


def test_answers_that_hit_the_token_limit_end_the_stage_at_the_first_rows(tmp_path: Path, writer: Path) -> None:
    """Without limits all seven instructions are answered in one shard."""
    cut = {"max_new_tokens": 2, "shard_size": 256, "samples_per_instruction": 1}
    quality = {"quality": {"first": 3, "truncated": 0.5}}
    done, _, rows, _ = answered(tmp_path / "whole", writer, **cut)
    assert len(rows) == 7 and "broken_off" not in done.facts
    done, made, rows, examples = answered(tmp_path / "limited", writer, **(cut | quality))
    assert len(rows) == 3 and examples == []
    assert done.facts["broken_off"] == "3 of 3 rows hit the token limit, more than 0.5"
    last = json.loads((made.folder / "progress.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert last["done"] == 3


def moved(folder: Path, model: Path) -> Path:
    """Return a model with other weights and the same tokenizer."""
    result, tokenizer = load(model)
    result.get_output_embeddings().weight.data.mul_(-3.0)
    save(result, tokenizer, folder)
    return folder


@pytest.mark.parametrize("kind", ["self_instruct", "sample_responses"])
@pytest.mark.parametrize("form", [pytest.param("base", marks=pytest.mark.more), "instruct"])
def test_a_witness_reads_what_was_written_as_it_was_asked(
    tmp_path: Path, writer: Path, chatty: Path, kind: Kind, form: Literal["base", "instruct"]
) -> None:
    model = writer if form == "base" else chatty
    if kind == "self_instruct":
        inputs = {"model": model, "seeds": seeds(tmp_path)}
        _, made = run(tmp_path / "job", kind, inputs, model_kind=form, **SMALL, max_rounds=1)
    else:
        _, made, _, _ = answered(tmp_path, model, model_kind=form)
    assert unwritten(made) == set()
    assert unwritten(made, moved(tmp_path / "moved", model), "other")


def test_a_witness_reads_the_sentinels_of_both_models(tmp_path: Path, chatty: Path) -> None:
    control = small_model(tmp_path / "control", chat=True, seed=3)
    inputs = {"model": chatty, "control": control}
    _, made = run(tmp_path / "job", "base_model_check", inputs, max_new_tokens=6)
    count = 2 * len(SENTINELS)
    assert unwritten(made) == set()
    results = unwritten(made, control, "other")
    assert len(results) > count / 2 and max(results) < count, "the rows of the control are still its own"

    def other_prompt(rows: list[dict[str, Any]]) -> None:
        rows[0]["ids"] = rows[0]["ids"][:-1]

    with pytest.raises(UnusableRow, match="row 0 is not sentinel"):
        witnessed(made, edit=other_prompt, folder="edited")
