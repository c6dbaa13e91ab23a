"""What a stage kind promises: parameters, inputs and outputs, rows, metrics; one folder a family."""
