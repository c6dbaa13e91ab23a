"""The stages, one module each, run as ``python -P -m training.stages.KIND JOB_FOLDER`` by the wrapper."""
