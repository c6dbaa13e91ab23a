"""Rules of generation: what is harvested, kept and refused."""
