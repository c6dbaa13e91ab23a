"""Who acts: builders. May import: training (torch-free parts), specs. Never reviews: it cannot reach its judge."""
