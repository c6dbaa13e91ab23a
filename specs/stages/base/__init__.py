"""What every stage kind is made of: stages, rows, metrics, artifacts."""
