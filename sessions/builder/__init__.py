"""What a builder sees and may do."""
