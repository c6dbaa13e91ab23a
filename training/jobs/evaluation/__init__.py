"""Jobs that measure a model. Judging is not here."""
