"""The generated pages of ``docs/reference``: what specs, registry, checks and command line declare of themselves."""
