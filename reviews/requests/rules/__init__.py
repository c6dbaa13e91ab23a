"""Rules that find faults in files without a model, each with the lines that show it."""
