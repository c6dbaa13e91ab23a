"""The flaw operators, by family, with what has to stop them: stated before any of them ran."""
