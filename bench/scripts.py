"""Reviews of other people's flawed and sound work: ``python -m bench.scripts FOLDER [--reviewer FILE] [--kind code]``.

FOLDER is a copy of the Replication Trap (``audit_scripts`` next to ``audit_answer_key/answer_key.json``, as its
generator leaves them) or of AIScientistPitfalls (``pitfall_detection/*/projects/True_* and False_*``). Each script or
project is reviewed as `peergate review request` does it, and counts as flagged if the review has an issue that is
critical or high. Nothing in FOLDER is run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from reviews.statistics.mcnemar import wilson
from sessions.pages.report.consult_context import ConsultContext
from sessions.requests.review_functions import request_review
from specs.loading.reviewer_file import load_reviewer
from specs.system.errors import UserError
from specs.system.regular_files import read_regular
from specs.system.vendors.parties import ReviewerSpec
from specs.trail.requested_review import ReviewAnswer, ReviewRequest

Kind = Literal["methodology", "code", "design"]
SERIOUS = ("CRITICAL", "HIGH")


class LabelledWork(NamedTuple):
    """A script or a project, and whether its authors planted a flaw in it."""

    path: Path
    category: str
    is_flawed: bool


def load_labelled(folder: Path) -> list[LabelledWork]:
    """Read a folder in either of the two layouts; raises UserError if it has neither."""
    key = folder / "audit_answer_key" / "answer_key.json"
    if key.is_file():
        labels = json.loads(read_regular(key))
        return [
            LabelledWork(folder / "audit_scripts" / name, label["category"], label["is_flawed"])
            for name, label in sorted(labels.items())
        ]
    projects = sorted(path for path in folder.glob("pitfall_detection/*/projects/*_*") if path.is_dir())
    labelled = [
        LabelledWork(path, path.parts[-3], path.name.startswith("True_"))
        for path in projects
        if path.name.startswith(("True_", "False_"))
    ]
    if not labelled:
        raise UserError("neither an answer key nor labelled projects", where=str(folder), hint=(__doc__ or "").strip())
    return labelled


def is_flagged(work: LabelledWork, kind: Kind, reviewer: ReviewerSpec, runs: Path) -> bool | None:
    """Return whether a review of the work has a serious issue; None if it was not answered."""
    request = ReviewRequest(paths=(str(work.path),), kind=kind)
    answer = request_review(request, ConsultContext(runs, reviewer=reviewer)).answer
    if not isinstance(answer, ReviewAnswer):
        return None
    return any(issue.severity in SERIOUS for issue in answer.issues)


def describe(results: Sequence[tuple[LabelledWork, bool | None]]) -> Iterator[str]:
    """Yield a line for each category, and for all: how many flawed and sound works were flagged."""
    for category in [*dict.fromkeys(work.category for work, _ in results), "all"]:
        parts = [f"{category:<28}"]
        for title, is_flawed in (("flawed", True), ("sound", False)):
            flags = [
                flag for work, flag in results if work.is_flawed is is_flawed and category in ("all", work.category)
            ]
            answered = [flag for flag in flags if flag is not None]
            if not answered:
                parts.append(f"{title}: not judged")
                continue
            low, high = wilson(sum(answered), len(answered))
            missing = f", {len(flags) - len(answered)} not judged" if len(answered) < len(flags) else ""
            parts.append(f"{title}: {sum(answered)} of {len(answered)} flagged [{low:.0%}, {high:.0%}]{missing}")
        yield "  ".join(parts)


def main() -> int:
    """Review everything in a folder and print the figures; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.scripts", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reviewer", type=Path, help="as under 'reviewer:' of a spec; rules without it")
    parser.add_argument("--kind", choices=("methodology", "code", "design"), default="code")
    chosen = parser.parse_args()
    reviewer = load_reviewer(chosen.reviewer) if chosen.reviewer else ReviewerSpec()
    results: list[tuple[LabelledWork, bool | None]] = []
    with tempfile.TemporaryDirectory(prefix="peergate-scripts-") as runs:
        for work in load_labelled(chosen.folder):
            results.append((work, is_flagged(work, chosen.kind, reviewer, Path(runs))))
            print(f"{work.category:<28}{'flawed' if work.is_flawed else 'sound':<8}{results[-1][1]}  {work.path.name}")
    print("\n".join(describe(results)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
