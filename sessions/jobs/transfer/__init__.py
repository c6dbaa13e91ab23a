"""Jobs on other machines: what is brought there and back."""
