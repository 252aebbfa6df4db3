"""Runs workloads in the target: one process each, forked after a framework was imported once, and watched by a sampler."""
