"""Programs that write the items of shipped data sets."""
