"""What is taken out of written instructions, byte by byte, and when the gate stays shut for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reviews.evidence.evidence import Evidence
from reviews.evidence.heldout_screen import is_screened, screen_items
from reviews.trail.chain.store import Store
from specs.session.session_spec import ResolvedSpec
from specs.stages.base.artifacts import Item
from specs.stages.generation.kinds import SAMPLE_RESPONSES, SELF_INSTRUCT
from specs.system.errors import EvidenceMissing
from testing.factories.evidence_on_disk import heldout_items, resolved_spec
from testing.factories.judged_evidence import results_of, values_of
from testing.factories.text_evidence import TEXTS, instruct_rows, text_evidence
from tests.stages.critique.test_critic_checks import with_thresholds

HELD = "Write one line of verse about the old stone bridge over the river."
SAME = (HELD, f"  {HELD.upper()} !!", HELD.removesuffix("river.") + "rivers.", f"Please do this: {HELD} Thank you.")
"""Word for word, without case and marks, nearly, and inside a longer text."""
OTHER = ("Describe the old stone bridge.", "Name three kinds of tea.", "")


class ScreenedFile:
    """A store with a held-out file of one prompt, and files of instructions."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder / "store")
        item = Item(id="h", group="h", kind="lowercase", prompt=HELD, constraint={})
        digest = self.store.put(item.model_dump_json().encode() + b"\n")
        resolved = resolved_spec(folder)
        self.resolved: ResolvedSpec = resolved.model_copy(
            update={"data_digests": resolved.data_digests | {"heldout": digest}}
        )

    def screened(self, *lines: bytes) -> bytes | None:
        return screen_items(self.store, self.resolved, self.store.put(b"".join(lines)))


def line(id: str, prompt: str) -> bytes:
    return Item(id=id, group=id, kind="general", prompt=prompt, constraint={}).model_dump_json().encode() + b"\n"


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[ScreenedFile]:
    yield ScreenedFile(tmp_path)


def test_the_lines_that_match_are_left_out_and_the_others_stay_byte_for_byte(screen: ScreenedFile) -> None:
    # Ids do not matter: a job may have written one twice.
    same, other = [line("a", text) for text in SAME], [line("a", text) for text in OTHER]
    assert screen.screened(same[0], other[0], *same[1:], *other[1:]) == b"".join(other)
    assert screen.screened(*same) == b""


def test_where_nothing_matches_the_file_itself_is_handed_on(screen: ScreenedFile) -> None:
    assert screen.screened(*[line(str(n), text) for n, text in enumerate(OTHER)]) is None


def test_the_registered_similarity_decides_what_is_near(screen: ScreenedFile) -> None:
    near = line("a", SAME[2])
    assert screen.screened(near, line("b", OTHER[0])) == line("b", OTHER[0])
    strict = screen.resolved.spec.thresholds.model_copy(update={"prompt_similarity": 0.95})
    spec = screen.resolved.spec.model_copy(update={"thresholds": strict})
    screen.resolved = screen.resolved.model_copy(update={"spec": spec})
    assert screen.screened(near, line("b", OTHER[0])) is None


def test_what_is_no_item_is_missing_evidence(screen: ScreenedFile) -> None:
    with pytest.raises(EvidenceMissing, match="a line is not an item"):
        screen.screened(b'{"id": "a"}\n')


def test_only_instructions_that_a_model_wrote_are_screened() -> None:
    writes = SELF_INSTRUCT.stage(name="w", kind="self_instruct", inputs={})
    answers = SAMPLE_RESPONSES.stage(name="a", kind="sample_responses", inputs={})
    assert is_screened(writes, "instructions") and not is_screened(writes, "rows")
    assert not is_screened(answers, "examples")


def colliding(folder: Path, seed: str | None = None) -> Evidence:
    """Return a stage that kept six instructions, one of them a held-out prompt; or one with such a seed."""
    evidence = text_evidence(
        folder, "self_instruct", instruct_rows("completion", *TEXTS[:5], HELD if seed is None else TEXTS[5])
    )
    item = heldout_items()[0].model_copy(update={"prompt": seed or HELD.upper()})
    return replace(evidence, heldout=(item, *heldout_items()[1:]))


@pytest.mark.parametrize(("most", "status"), [(0.17, "WARN"), (0.16, "FAIL"), (0.0, "FAIL"), (None, "FAIL")])
def test_a_share_above_the_registered_one_closes_the_gate(tmp_path: Path, most: float | None, status: str) -> None:
    evidence = colliding(tmp_path)
    evidence = evidence if most is None else with_thresholds(evidence, written_heldout=most)
    check = results_of(evidence)["text.overlap"]
    assert (check.status, check.repairable) == (status, status == "WARN")
    assert "1 of 6 kept instructions are held-out prompts (1 normalised)" in check.detail
    assert [row["train_text"] for row in check.rows] == [HELD] and check.figure == pytest.approx(1 / 6)
    assert "written_heldout <= " in (check.threshold or "")


def test_what_is_taken_out_is_counted_and_the_definition_of_kept_stays(tmp_path: Path) -> None:
    values = values_of(colliding(tmp_path))
    assert [values[f"instructions_{name}"] for name in ("kept", "held_out", "left")] == [6, 1, 5]


def test_a_seed_that_is_a_heldout_prompt_closes_the_gate_whatever_is_written(tmp_path: Path) -> None:
    checks = results_of(with_thresholds(colliding(tmp_path, "Name three kinds of tea!"), written_heldout=0.2))
    assert (checks["text.overlap"].status, checks["text.overlap"].repairable) == ("FAIL", False)
