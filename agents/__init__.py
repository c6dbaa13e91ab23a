"""Who acts: builders. May import: training (torch-free parts), specs. Never reviews: the builder cannot reach its judge."""
