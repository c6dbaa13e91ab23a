"""What acceptance criteria have come to, computed from the trail alone."""
