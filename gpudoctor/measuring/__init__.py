"""How workloads are run in the target: a process each, forked after one import per framework, watched by a sampler.

This package travels (standard library only, Python 3.8).
"""
