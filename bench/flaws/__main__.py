"""Plant flaws in real sessions: ``python -m bench.flaws [--family F] [--operator NAME] [--list] [--json] [--out F]``.

An operator that the file of ``--out`` names already is not run again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.flaws.operator import FAMILIES, Operator
from bench.flaws.operators import OPERATORS
from bench.flaws.session import Ended, run_session, tiny_model


def outcome(operator: Operator, ended: Ended, twin: Ended) -> str:
    """Return how a flaw fared: stopped or named by what was expected, ended without acceptance, or missed.

    A finding that the healthy twin raises too names nothing.
    """
    new = [one for one in ended.failed if one not in twin.failed]
    if any(wanted in one for wanted in operator.expected for one in new):
        return "named" if ended.accepted else "stopped"
    return "missed" if ended.accepted else "ended without acceptance"


def main() -> int:
    """Run the chosen operators and the twin; returns 0 if the twin was accepted and no flaw was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.flaws", description=__doc__)
    parser.add_argument("--family", choices=FAMILIES)
    parser.add_argument("--operator", choices=[one.name for one in OPERATORS])
    parser.add_argument("--list", action="store_true", help="show the operators and run nothing")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--out", type=Path, help="a file of one object a line, to go on with")
    parser.add_argument("--healthy", type=int, metavar="N", help="run N healthy sessions over seeds instead")
    chosen = parser.parse_args()
    if chosen.list:
        for one in OPERATORS:
            print(f"{one.family:<12}{one.name:<22}{one.what}; expected: {', '.join(one.expected)}")
        return 0
    with tempfile.TemporaryDirectory(prefix="peergate-flaws-") as name:
        folder = Path(name)
        model = tiny_model(folder)
        if chosen.healthy:
            return _healthy(folder, model, chosen.healthy)
        return _flaws(folder, model, chosen)


def _healthy(folder: Path, model: Path, count: int) -> int:
    ended = [run_session(folder / f"healthy{seed}", model, seed=seed) for seed in range(1, count + 1)]
    for seed, one in enumerate(ended, 1):
        print(f"seed {seed}: {one.outcome} {' '.join(one.failed)}")
    rejected = sum(one.outcome not in ("approve", "null") for one in ended)
    print(f"{rejected} of {count} healthy sessions were neither accepted nor ended in a null result")
    return int(rejected > 0)


def _flaws(folder: Path, model: Path, chosen: argparse.Namespace) -> int:
    wanted = [one for one in OPERATORS if chosen.family in (None, one.family) and chosen.operator in (None, one.name)]
    kept = [json.loads(line) for line in _lines(chosen.out)]
    twin = run_session(folder / "twin", model)
    results: list[dict[str, Any]] = [one for one in kept if one["operator"] in {each.name for each in wanted}]
    known = {one["operator"] for one in results}
    print(f"the healthy twin: {twin.outcome} {' '.join(twin.failed)}")
    for result in results:
        _show(result, as_json=chosen.json)
    for operator in wanted:
        if operator.name in known:
            continue
        began = time.perf_counter()
        ended = run_session(folder / operator.name, model, operator)
        result = {"operator": operator.name, "family": operator.family, "result": outcome(operator, ended, twin)}
        result |= {"outcome": ended.outcome, "failed": ended.failed, "seconds": round(time.perf_counter() - began, 1)}
        results.append(result)
        if chosen.out:
            with chosen.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
        _show(result, as_json=chosen.json)
    return int(not twin.accepted or any(one["result"] == "missed" for one in results))


def _lines(path: Path | None) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []


def _show(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result), flush=True)
        return
    told = f"{result['result']:<26}{result['outcome']:<10}{result['seconds']:>6}  {' '.join(result['failed'])}"
    print(f"{result['family']:<12}{result['operator']:<22}{told[:160]}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
