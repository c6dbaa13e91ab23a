"""What jobs read, held against what stages left: an input is the output its reference names, or what is left of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from reviews.evidence.heldout_screen import is_screened, screened
from reviews.trail.envelope import Recorded
from reviews.trail.store import Store
from specs.digests import digest_bytes
from specs.job_records import JobOrder
from specs.session.session_spec import ResolvedSpec


class Left:
    """The outputs that stages have left so far, entry by entry of a trail."""

    def __init__(self) -> None:
        self._digests: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def take(self, ended: Recorded) -> None:
        """Add what an ``exit`` entry names."""
        for output, artifact in ended.body["outputs"].items():
            self._digests[ended.body["stage"], output].add(artifact["digest"])

    def damage(self, launch: Recorded, order: JobOrder, resolved: ResolvedSpec, store: Store) -> Iterator[str]:
        """Say which inputs of a job no stage has left.

        Instructions that a model wrote may be handed on as they are (before there was a screen) or screened.
        """
        stages = {stage.name: stage for stage in resolved.spec.stages}
        for role, artifact in order.inputs.items():
            owner, _, output = artifact.name.partition(".")
            if not output or owner not in stages:
                continue
            made = self._digests[owner, output]
            if artifact.digest in made:
                continue
            if is_screened(stages[owner], output) and any(
                (left := screened(store, resolved, one)) is not None and digest_bytes(left) == artifact.digest
                for one in sorted(made)
            ):
                continue
            told = f"input '{role}' of job {order.key} is not what '{owner}' left as {output}"
            yield f"entry {launch.entry.seq} (launch): {told}"
