"""What the five-minute page shows, typed as it is written: a verifier and prompts, rows, a file for TRL."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specs.system.home import HOME
from testing.fixtures.command_sessions import typed, verify

PAGE = HOME / "docs" / "tutorials" / "your-own-data.md"
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
ENDS = ("accepted", "no significant difference", "no result", "items would do", "waiting")


def test_there_is_a_block_for_each_journey() -> None:
    assert [len(re.findall("peergate start", block)) for block in BLOCKS] == [1, 1, 1, 1]


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("number", "name"), [(0, "keys"), (1, "eggs"), (2, "moods"), (3, "trained")])
def test_a_journey_comes_to_its_end(number: int, name: str, tmp_path: Path) -> None:
    ended = typed(BLOCKS[number], tmp_path)
    assert ended.returncode in (0, 3, 4), ended
    assert any(end in ended.stdout for end in ENDS), ended.stdout
    if name == "moods":
        # Labels are not collapse: the gates of both arms open, whatever the result.
        assert any(end in ended.stdout for end in ENDS[:3]), ended.stdout
    code, report = verify(tmp_path / "runs" / name)
    assert code in (0, 4) and not report["damage"], report
