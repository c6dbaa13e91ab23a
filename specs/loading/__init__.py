"""Reading a spec and the files it names into one resolved spec."""
