"""``python -m release.reference docs/reference [--stages]`` writes the generated pages.

A test compares the committed pages. Those of stage kinds are not committed: ``--stages`` writes them too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from release.reference.pages import write_pages
from specs.system.home import HOME

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?", default=HOME / "docs" / "reference")
    parser.add_argument("--stages", action="store_true")
    arguments = parser.parse_args()
    for file in write_pages(arguments.folder, with_stages=arguments.stages):
        print(file)
