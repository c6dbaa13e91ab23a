"""The inside of a builder's sandbox, and what takes a checkpoint of its script over."""
