"""How workloads are run in the target: a process each, forked after one import per framework, watched by a sampler."""
