"""A stage in a few milliseconds, with the standard library only: its one effect outside is a line in a file.

It refuses without the claim of its parent, as ``training/jobs/job.py`` does, and writes its outputs slowly enough to be
killed in the middle of them.
"""

import hashlib
import json
import os
import random
import shutil
import sys
import time
from pathlib import Path


def digest_of(folder: Path) -> str:
    """As ``specs/system/digests.py`` names a folder."""
    table = {
        path.relative_to(folder).as_posix(): f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in folder.rglob("*")
        if path.is_file()
    }
    output = json.dumps(table, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(output.encode()).hexdigest()}"


def main() -> int:
    folder = Path(sys.argv[1])
    order = json.loads((folder / "order.json").read_bytes())
    owner = json.loads((folder / "claim" / "claim.json").read_bytes())
    # Between it and the wrapper stands a guard.
    guard = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8", errors="replace")
    if (owner["key"], owner["pid"]) != (order["key"], int(guard.rpartition(")")[2].split()[1])):
        print("refused: no claim of the process that started this one", file=sys.stderr)
        return 4
    outside = folder.parents[3]
    effects = os.open(outside / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(effects, f"{order['key']}\n".encode())
    # What a witness of so few rows reads is the same in every session, all of them; of more, it follows from the order.
    template = outside / "templates" / (order["grant"]["stage"] + (".witness" if order.get("challenge") else ""))
    files = sorted(path for path in (template / "out").rglob("*") if path.is_file())
    for done, source in enumerate(files):
        target = folder / "out" / source.relative_to(template / "out")
        target.parent.mkdir(parents=True, exist_ok=True)
        data = source.read_bytes()
        with target.open("wb") as handle:
            handle.write(data[: len(data) // 2])
            handle.flush()
            time.sleep(random.random() * 0.06)
            handle.write(data[len(data) // 2 :])
        print(f"wrote {source.name}", flush=True)
        with (folder / "progress.jsonl").open("a") as handle:
            line = {"time": time.time(), "done": done + 1, "total": len(files), "unit": "files", "note": {}}
            handle.write(json.dumps(line) + "\n")
    manifest = json.loads((template / "manifest.json").read_bytes())
    if order.get("challenge") and order["kind"] == "evaluate":
        (rows,) = (folder / "out").iterdir()
        read = json.loads(rows.read_bytes().splitlines()[0])
        lines = [json.dumps(read | {"row": row}) + "\n" for row in order["challenge"]["rows"]]
        rows.write_text("".join(lines))
        manifest["outputs"][rows.stem] = f"sha256:{hashlib.sha256(rows.read_bytes()).hexdigest()}"
    if order["kind"] == "package":
        # What is packaged is the model that was trained, which need not be that of the template.
        shutil.rmtree(folder / "out" / "package", ignore_errors=True)
        shutil.copytree(folder.parents[1] / order["inputs"]["model"]["path"], folder / "out" / "package")
        manifest["outputs"]["package"] = digest_of(folder / "out" / "package")
    manifest |= {"key": order["key"], "inputs": order["grant"]["inputs"], "parameters": order["grant"]["parameters"]}
    (folder / ".manifest.json").write_text(json.dumps(manifest))
    shutil.move(folder / ".manifest.json", folder / "manifest.json")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
