"""Rules of criticism: which responses become pairs."""
