"""What does it cost that the reviewer is a process of its own? Prints seconds, each beside the same without a process.

    .venv/bin/python -m bench.reviewer_process RUN

RUN is the run folder of a session; every packet in its trail is reviewed by the checklist and a verdict on it signed.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from reviews.reviewers.checklist import Checklist
from reviews.reviewers.process.client import ReviewerProcess
from reviews.reviewers.process.confinement import is_confined
from reviews.reviewers.process.reviewer_proxy import party
from reviews.trail.envelope import pae, payload_of
from reviews.trail.keys import create_key, load_key
from reviews.trail.store import Store
from reviews.trail.tables.open_table import read_entries
from specs.trail.entry import GENESIS, Entry
from specs.trail.verdict import Packet
from specs.vendors.parties import Reviewer

STARTS = 5
GATES = 200


def seconds(do: Callable[[], object], times: int) -> str:
    """Return the least and the median of so many runs, in milliseconds."""
    values: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        do()
        values.append(time.perf_counter() - began)
    return f"min {min(values) * 1000:8.2f} ms  median {statistics.median(values) * 1000:8.2f} ms"


def main() -> int:
    """Print the figures."""
    run = Path(sys.argv[1])
    digests = [entry.body["packet"] for entry in read_entries(run / "trail.sqlite") if entry.entry.kind == "packet"]
    packets = {digest: Packet.model_validate(Store(run / "store").get_value(digest)) for digest in digests}
    largest = max(packets, key=lambda value: len(packets[value].canonical()))
    packet = packets[largest]
    print(f"the largest of {len(packets)} packets has {len(packet.canonical())} bytes; bubblewrap: {is_confined()}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys" / "reviewer.pem"
        create_key(path)
        key, rules = load_key(path), Checklist()
        process = ReviewerProcess("bench", (Reviewer(),), path)
        apart = party(process, 0)

        def start() -> None:
            process.close()
            assert process.public

        def gate(review: Callable[[], object], sign: Callable[[bytes], bytes]) -> Callable[[], object]:
            return lambda: (review(), sign(data))

        verdict = rules.review(packet, largest)
        body = {"stage": "a", "attempt": 1, "packet": largest, "verdict": verdict.content_digest(), "error": ""}
        values = {"seq": 1, "kind": "verdict", "session": "bench", "key": "verdict/a.1", "time_ns": "1"}
        entry = Entry.model_validate(values | {"previous": GENESIS, "body": body | {"reviewer": rules.name}})
        data = pae(payload_of(entry))
        print(f"start, once a session    {seconds(start, STARTS)}")
        print(f"a gate, in the process   {seconds(gate(lambda: apart.review(packet, largest), process.sign), GATES)}")
        print(f"a gate, without one      {seconds(gate(lambda: rules.review(packet, largest), key.sign), GATES)}")
        process.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
