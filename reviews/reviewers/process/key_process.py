"""``python -P -m reviews.reviewers.process.key_process PATH [--make]``: prints the public half of a key."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from reviews.trail.chain.keys import create_key, load_key
from specs.system.errors import UserError


def main() -> int:
    """Print one JSON object: the public key, or what is wrong."""
    make = sys.argv[2:] == ["--make"]
    if len(sys.argv) != 2 + make:
        print(__doc__, file=sys.stderr)
        return 2
    path = Path(sys.argv[1])
    try:
        if make:
            create_key(path)
        facts = {"public": load_key(path).public.hex()}
    except UserError as error:
        facts = {"message": error.message, "where": error.where, "hint": error.hint}
    except OSError as error:
        facts = {"message": f"the signing key '{path.stem}' cannot be made: {error.strerror}", "where": str(path)}
        facts["hint"] = "make the folder writable"
    print(json.dumps(facts))
    return 0 if "public" in facts else 2


if __name__ == "__main__":
    raise SystemExit(main())
