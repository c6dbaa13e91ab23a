"""What the trail holds: entries, their bodies, keys, grants, verdicts."""
