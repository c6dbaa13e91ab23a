"""Training files of other tools (``script: sft.yaml``): what is kept of them, and the script that they become."""
