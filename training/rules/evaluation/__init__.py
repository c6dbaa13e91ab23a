"""Rules of evaluation: labelled pairs, shuffled histories."""
