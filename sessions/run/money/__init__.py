"""What a session may spend, has reserved and has spent."""
