"""What a gate is given: files by digest, rows, items, weights, overlaps."""
