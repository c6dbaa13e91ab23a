"""A split is drawn again from its registered pool."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reviews.stages.evaluation.item_checks import drawn_again
from sessions.builder.tools.reading_tools import artifacts
from specs.loading.loading import load_spec
from specs.session.design import Pool
from specs.stages.base.artifacts import Item
from specs.system.digests import digest_file
from specs.system.errors import SpecError
from testing.factories.evidence_on_disk import design_results, heldout_items, prompt_items, resolved_spec

POOL = [
    Item(id=f"p{n}", group=f"g{n}", kind=f"k{n % 2}", prompt=f"Question {n}?", constraint={"answer": n})
    for n in range(40)
]


def draw(per_kind: int, seed: int) -> list[Item]:
    """Return the items that the rule draws, as its description says."""
    order = sorted(POOL, key=lambda item: hashlib.sha256(f"{seed}/{item.id}".encode()).hexdigest())
    return [item for kind in ("k0", "k1") for item in [entry for entry in order if entry.kind == kind][:per_kind]]


@pytest.mark.parametrize(("per_kind", "seed"), [(5, 0), (8, 7), (50, 1)])
def test_the_split_that_the_rule_draws_passes(per_kind: int, seed: int) -> None:
    items = [item.model_copy(update={"id": f"h{place}"}) for place, item in enumerate(reversed(draw(per_kind, seed)))]
    outcome = drawn_again(Pool(data="pool", per_kind=per_kind, seed=seed), POOL, items)
    assert (outcome.status, outcome.detail) == (
        "PASS",
        f"the rule draws the {len(items)} held-out items again, of 40 in 'pool'",
    )


def test_picked_items_fail_and_are_shown() -> None:
    items = draw(5, 0)
    other = next(item for item in POOL if item not in items and item.kind == items[0].kind)
    outcome = drawn_again(Pool(data="pool", per_kind=5), POOL, [other, *items[1:]])
    assert (outcome.status, outcome.repairable) == ("FAIL", False)
    assert [*outcome.rows[0]] == ["heldout", "text"] and outcome.rows[1]["missing"] == items[0].id
    assert outcome.detail.startswith("1 of 10 held-out items are not what the rule draws from 'pool', and 1 of 10")


@pytest.mark.parametrize("change", [{"prompt": "Question 3, the easy one?"}, {"constraint": {"answer": 7}}])
def test_a_changed_item_is_not_the_drawn_one(change: dict[str, object]) -> None:
    items = draw(5, 0)
    outcome = drawn_again(Pool(data="pool", per_kind=5), POOL, [items[0].model_copy(update=change), *items[1:]])
    assert outcome.status == "FAIL"


def test_without_a_pool_that_is_stated() -> None:
    outcome = drawn_again(None, (), POOL)
    assert outcome.status == "NOT_APPLICABLE" and "nothing shows that the items were not picked" in outcome.detail


def write_pool(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write the small spec with a pool that holds its held-out items and two more."""
    resolved_spec(folder)
    more = [
        item.model_copy(update={"id": f"m{n}", "prompt": f"More {n}?"}) for n, item in enumerate(prompt_items()[:2])
    ]
    lines = [f"{item.model_dump_json()}\n" for item in (*heldout_items(), *more)]
    (folder / "pool.jsonl").write_text("".join(lines), encoding="utf-8")
    path = folder / "spec.yaml"
    text = path.read_text(encoding="utf-8")
    for old, new in (
        ("prompts: {path: prompts.jsonl}", "prompts: {path: prompts.jsonl}\n  pool: {path: pool.jsonl}"),
        ("heldout:\n", "heldout:\n  pool: {data: pool, per_kind: 20}\n"),
        *changes,
    ):
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_pool_is_registered_and_is_no_training_data(tmp_path: Path) -> None:
    resolved = load_spec(write_pool(tmp_path))
    assert resolved.data_digests["pool"] == digest_file(tmp_path / "pool.jsonl")
    assert resolved.spec.hidden_data() == {"heldout", "pool"}
    results = design_results(resolved, heldout_items(), {"prompts": prompt_items(), "pool": heldout_items()})
    outcome = {result.id: result.status for result in results}
    assert (outcome["design.drawn"], outcome["design.overlap"]) == ("PASS", "PASS")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("data: pool, per", "data: pond, per"), "'pond' is not a data file of items"),
        (("prompts: data.prompts", "prompts: data.pool"), "reads the pool of the held-out split"),
    ],
)
def test_a_pool_that_is_not_there_or_is_read_is_refused(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load_spec(write_pool(tmp_path, change))


def test_a_builder_does_not_see_the_pool(tmp_path: Path) -> None:
    nothing: Any = dict[Any, Any]().get
    trail = SimpleNamespace(iterate=lambda *_: ())  # pyright: ignore[reportUnknownLambdaType]
    session: Any = SimpleNamespace(resolved=load_spec(write_pool(tmp_path)), find=nothing, trail=trail)
    assert [artifact.name for artifact in artifacts(session) if artifact.name.startswith("data.")] == ["data.prompts"]
