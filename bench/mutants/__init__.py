"""Which changes of the deciding code the tests notice: ``python -m bench.mutants``."""
