"""YAML with positions, and problems with the line they are on."""
