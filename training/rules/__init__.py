"""What jobs and judges must compute alike. Pure: no torch, transformers or TRL."""
