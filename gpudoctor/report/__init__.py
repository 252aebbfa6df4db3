"""Formats: each module has a `render` that turns a Report into text and knows nothing else."""
