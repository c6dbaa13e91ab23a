"""A run folder, who holds it, and how it is paused."""
