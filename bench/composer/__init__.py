"""What the three channels cost, and what each of them learns."""
