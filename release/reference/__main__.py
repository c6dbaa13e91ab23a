"""``python -m release.reference docs/reference`` writes the generated pages; a test compares them."""

from __future__ import annotations

import sys
from pathlib import Path

from release.reference.pages import write_pages
from specs.home import HOME

if __name__ == "__main__":
    for file in write_pages(Path(sys.argv[1]) if len(sys.argv) > 1 else HOME / "docs" / "reference"):
        print(file)
