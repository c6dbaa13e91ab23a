"""Reviews that a person or a builder asks for."""
