"""From an accepted session to a model that others can use: checked, described, signed, released."""
