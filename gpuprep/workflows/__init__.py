"""In which order does each command run, from HOST to a stored record? No Click and no output format."""
