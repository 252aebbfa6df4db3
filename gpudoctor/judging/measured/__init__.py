"""Judges measured figures against datasheets, siblings and baselines. Pure."""
