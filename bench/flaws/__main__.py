"""Plant flaws in real sessions: ``python -m bench.flaws [--family F] [--operator NAME] [--list] [--json] [--out F]``.

What the file of ``--out`` names already is not run again. ``--healthy N`` runs N healthy sessions instead, over seeds,
methods, precisions, engines, kinds of items, tasks and launchers; their numbers, from ``--first``, are their seeds.
``python -m bench.gate`` runs them all and writes the page of figures.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.flaws.healthy import METHODS, VARIATIONS, summary_of
from bench.flaws.operator import FAMILIES
from bench.flaws.operators import OPERATORS
from bench.flaws.run_many import Result, run_in_processes, run_planted_session, sound, teach_models, twin
from bench.flaws.small_specs import tiny_model


def main() -> int:
    """Run what was chosen; returns 0 if no flaw was missed, every twin accepted, and no healthy session rejected."""
    parser = argparse.ArgumentParser(prog="python -m bench.flaws", description=__doc__)
    parser.add_argument("--family", choices=FAMILIES)
    parser.add_argument(
        "--operator", choices=[operator.name for operator in OPERATORS], action="append", help="may be repeated"
    )
    parser.add_argument("--list", action="store_true", help="show the operators and run nothing")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--out", type=Path, help="a file of one object a line, to resume from")
    parser.add_argument("--healthy", type=int, metavar="N", help="run N healthy sessions instead")
    parser.add_argument("--first", type=int, default=1, metavar="N", help="the first of the healthy ones (default: 1)")
    parser.add_argument("--method", choices=METHODS, action="append", help="of healthy sessions; may be repeated")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="run N sessions at a time (default: 1)")
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="keep models and sessions there, for the next call")
    chosen = parser.parse_args()
    if chosen.list:
        for operator in OPERATORS:
            print(f"{operator.family:<12}{operator.name:<26}{operator.what}; expected: {', '.join(operator.expected)}")
        return 0
    remaining = [json.loads(line) for line in _lines(chosen.out)]
    if chosen.work:
        chosen.work.mkdir(parents=True, exist_ok=True)
        return (_healthy if chosen.healthy else _flaws)(chosen.work, remaining, chosen)
    with tempfile.TemporaryDirectory(prefix="peergate-flaws-") as name:
        return (_healthy if chosen.healthy else _flaws)(Path(name), remaining, chosen)


def _lines(path: Path | None) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []


def _flaws(folder: Path, kept_results: list[Result], chosen: argparse.Namespace) -> int:
    named = chosen.operator or [operator.name for operator in OPERATORS]
    wanted = [operator for operator in OPERATORS if chosen.family in (None, operator.family) and operator.name in named]
    names = {value.name for value in wanted}
    results = [result for result in kept_results if result.get("operator") in names]
    for result in results:
        _show(result, chosen)
    known = {result["operator"] for result in results}
    wanted = [value for value in wanted if value.name not in known]
    tiny_model(folder)
    sessions = list(dict.fromkeys(value.session for value in wanted))
    twins = dict(run_in_processes(chosen.workers, twin, [(folder, session) for session in sessions]))
    for session, ended in twins.items():
        print(f"the healthy twin {session}: {ended.outcome} {' '.join(ended.failed)}", flush=True)
    for result in run_in_processes(
        chosen.workers, run_planted_session, [(folder, value.name, twins[value.session]) for value in wanted]
    ):
        results.append(result)
        _keep(result, chosen)
    bad = [result for result in results if result["result"] == "missed"]
    print(f"{len(results)} flaws: " + ", ".join(f"{count} {name}" for name, count in _counts(results).items()))
    return int(bool(bad) or any(not twin.is_accepted for twin in twins.values()))


def _healthy(folder: Path, kept_results: list[Result], chosen: argparse.Namespace) -> int:
    numbers = range(chosen.first, chosen.first + chosen.healthy)
    results = [result for result in kept_results if result.get("healthy") in numbers]
    known = {result["healthy"] for result in results}
    methods = chosen.method or METHODS
    wanted = [
        number for number in numbers if number not in known and VARIATIONS[number % len(VARIATIONS)].session in methods
    ]
    # Those whose jobs are processes of their own take longest.
    wanted.sort(key=lambda number: VARIATIONS[number % len(VARIATIONS)].launcher is not None)
    teach_models(folder, wanted)
    for result in run_in_processes(chosen.workers, sound, [(folder, number) for number in wanted]):
        results.append(result)
        _keep(result, chosen)
    print(summary_of(results))
    return int(any(result["result"] == "rejected" for result in results))


def _keep(result: Result, chosen: argparse.Namespace) -> None:
    if chosen.out and result["result"] != "broken":
        with chosen.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
    _show(result, chosen)


def _show(result: Result, chosen: argparse.Namespace) -> None:
    if chosen.json:
        print(json.dumps(result), flush=True)
        return
    first = result.get("family", "healthy")
    name = result["operator"] if "operator" in result else f"{result['healthy']} {result['variation']}"
    parts = f"{result['result']:<26}{result['outcome']:<10}{result['seconds']:>6}  {' '.join(result['failed'])}"
    print(f"{first:<12}{name:<26}{parts[:150]}", flush=True)


def _counts(results: Sequence[Result]) -> dict[str, int]:
    names = dict.fromkeys(result["result"] for result in results)
    return {name: sum(result["result"] == name for result in results) for name in names}


if __name__ == "__main__":
    raise SystemExit(main())
