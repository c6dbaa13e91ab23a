"""Where this copy of Peergate lies. Only this module counts folders upwards: one that moves would count wrong."""

from __future__ import annotations

from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
"""The folder that holds the packages: a checkout, or ``site-packages``."""
PACKAGES = ("agents", "reviews", "sessions", "specs", "training")
