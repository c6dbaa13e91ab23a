"""Change bytes by coverage: ``python -m testing.factories.fuzz_with_atheris RUN EXPORT WORK COUNT`` (atheris)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Run ``COUNT`` inputs; libFuzzer ends the process, with 0 when nothing was fooled and nothing was raised."""
    import atheris  # pyright: ignore[reportMissingImports, reportMissingModuleSource]

    fuzzer: Any = atheris
    with fuzzer.instrument_imports(include=["reviews"]):
        from testing.factories.fuzzing import targets

    run, exported, work = map(Path, sys.argv[1:4])
    # Those that open databases and folders are left to the random changes: here it is parsers that coverage leads into.
    parsers = [target for target in targets(run, exported, work / "work") if target.share > 1]
    seeds = work / "seeds"
    seeds.mkdir()
    for number, target in enumerate(parsers):
        (seeds / str(number)).write_bytes(bytes([number]) + target.seed)

    def one_input(data: bytes) -> None:
        if data:
            target = parsers[data[0] % len(parsers)]
            assert data[1:] == target.seed or not target.is_fooled(data[1:]), f"{target.name} was fooled"

    fuzzer.Setup([sys.argv[0], f"-runs={sys.argv[4]}", "-seed=7", "-max_len=20000", str(seeds)], one_input)
    fuzzer.Fuzz()


if __name__ == "__main__":
    main()
