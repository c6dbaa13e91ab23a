"""The stages, one module each, run as ``python -P -m training.jobs.KIND JOB_FOLDER`` by the wrapper."""
