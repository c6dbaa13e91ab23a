"""Jobs that have a model write programs."""
