"""What builders and reviewers that ask a model have in common: one exchange, keys, prices, bounds of cost."""
