"""What happened, as pages, plots and lines."""
