"""A container as a target of checks."""
