"""What a job is granted, where it runs and what it leaves."""
