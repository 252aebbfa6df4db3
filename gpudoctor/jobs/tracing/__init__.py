"""Runs a command with a profiler in it, and reduces what the profiler recorded to a few tables."""
