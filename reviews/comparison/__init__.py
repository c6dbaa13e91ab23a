"""The registered comparison: arms, tests, subgroups, power, parity, controls, drift, seeds."""
