"""Libraries without what no language model needs, since their code counts towards the memory of every training job.

``transformers.loss`` imports ``scipy.optimize`` to match boxes in object detection (seen in 5.23): 36 MB, three times
what contracts, stages and watching of such a job take.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

_LOSSES = "transformers.loss.loss_utils"


def leave_out_scipy() -> None:
    """Import the losses of transformers as on a machine without scipy; of no effect once they are imported.

    Whatever else asks for scipy, before or after, gets it.
    """
    if _LOSSES in sys.modules:
        return
    utils: Any = import_module("transformers.utils")
    asked = utils.is_scipy_available
    utils.is_scipy_available = lambda: False
    try:
        import_module(_LOSSES)
    finally:
        utils.is_scipy_available = asked
