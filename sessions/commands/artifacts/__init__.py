"""Commands on what a session leaves: its model, its weights, its results in other formats."""
