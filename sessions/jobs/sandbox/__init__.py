"""A builder's script, without network and held-out items."""
