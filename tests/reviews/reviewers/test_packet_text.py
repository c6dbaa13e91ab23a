"""What a model is shown of a packet: half as long, and every pointer into it points at the same place of the packet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reviews.gate.packet import resolvable
from reviews.reviewers.vendors.packet_text import build_packet_view, render
from specs.trail.verdict import CheckResult, Packet, Span
from testing.factories.evidence_on_disk import evidence_of
from tests.reviews.gate.test_packet import packet_of

STAGES = ("base", "sample", "train", "tuned", "ship")


def pointers(value: Any, at: str = "") -> Iterator[str]:
    """Yield the pointer of every place below a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for name, item in inner:
        place = f"{at}/{str(name).replace('~', '~0').replace('/', '~1')}"
        yield place
        yield from pointers(item, place)


@pytest.mark.parametrize("stage", STAGES)
def test_what_a_model_is_shown_is_half_as_long_as_the_packet(tmp_path: Path, stage: str) -> None:
    packet = packet_of(evidence_of(tmp_path, stage))
    assert len(packet.checks) > 10, "the control: there are checks"
    assert len(render(packet).encode()) < len(packet.canonical()) / 2


@pytest.mark.parametrize("stage", STAGES)
def test_every_pointer_into_it_points_into_the_packet(tmp_path: Path, stage: str) -> None:
    packet = packet_of(evidence_of(tmp_path, stage))
    results = [pointer for pointer in pointers(build_packet_view(packet)) if not pointer.startswith("/quiet_checks")]
    lost = [text for text in results if not resolvable(Span(artifact=packet.content_digest(), pointer=text), packet)]
    assert len(results) > 30 and lost == []


def test_only_checks_that_passed_and_show_nothing_are_counted(tmp_path: Path) -> None:
    packet = packet_of(evidence_of(tmp_path, "sample"))
    rows = ({"nearest": "a row"},)
    changed = [
        CheckResult.model_validate(
            {
                "id": f"c{place}",
                "title": "C",
                "status": status,
                "blocking": place % 2 == 0,
                "detail": "d",
                "rows": rows_of,
            }
        )
        for place, (status, rows_of) in enumerate(
            [
                ("PASS", ()),
                ("PASS", rows),
                ("NOT_APPLICABLE", ()),
                ("WARN", ()),
                ("FAIL", ()),
                ("BLOCKED", ()),
                ("ERROR", ()),
            ]
        )
    ]
    report = build_packet_view(packet.model_copy(update={"checks": tuple(changed)}))
    assert sorted(report["checks"]) == ["1", "3", "4", "5", "6"]
    assert report["quiet_checks"] == {"passed": 1, "not_applicable": 1, "places_of_passed": {"c0": 0}}
    assert report["checks"]["4"] == {"id": "c4", "status": "FAIL", "blocking": True, "detail": "d"}
    assert report["checks"]["1"]["rows"] == [{"nearest": "a row"}]


def test_nothing_else_is_left_out(tmp_path: Path) -> None:
    packet = packet_of(evidence_of(tmp_path, "sample"))
    left_out = set(Packet.model_fields) - set(build_packet_view(packet))
    whole = set(packet.model_dump(mode="json"))
    assert left_out & whole == {"checks_digest", "metrics_digest", "registration", "reading"}
