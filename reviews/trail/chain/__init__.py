"""The records of a trail: stored entries, their Merkle tree, signed heads, keys and stored files."""
