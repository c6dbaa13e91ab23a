"""Parameters of the kind that runs a script."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from specs.stages.recipes.script_file import is_requirement
from specs.system.digests import Contract, Digest, Name, omit_default


def _a_requirement(text: str) -> str:
    if not is_requirement(text):
        raise ValueError("expected a requirement such as 'datasets>=5', without addresses, extras or markers")
    return text


Requires = Annotated[str, Field(max_length=200), AfterValidator(_a_requirement)]


class RecipeParameters(Contract):
    """Run a script, the builder's or your own, in a sandbox; what it may use of the machine is registered here."""

    code: Digest | None = None
    """Digest of the script. The builder hands it in, or the stage's ``script`` is read; a spec does not give it."""
    memory_mb: Annotated[int, Field(ge=64, le=1_048_576)] = 2048
    """The limit for all its processes together. Files in /out, /tmp and /dev/shm are in memory too and do not count."""
    output_mb: Annotated[int, Field(ge=1, le=65536)] = 64
    """The most that /out can hold; /tmp and /dev/shm can hold as much again, each."""
    processes: Annotated[int, Field(ge=1, le=4096)] = 64
    """Threads are counted too."""
    gpu: bool = False
    """Whether it may use the machine's NVIDIA GPUs."""
    requires: tuple[Requires, ...] = omit_default(())
    """Distributions that the script imports, as pip names them: ``datasets>=5``. They must be in Peergate's Python
    environment before the session starts."""
    trains: Name | None = omit_default()
    """The input checkpoint that the script trains; the folder ``checkpoint`` of /out becomes an output if it is the
    same model with other weights. None: the script trains nothing."""
    curates: Name | None = omit_default()
    """The input of examples that the script curates: the rows that it copies to /out/examples.jsonl, unchanged, are its
    output ``examples``. None: it curates nothing."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
