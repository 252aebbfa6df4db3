"""Watches a program from outside: the GPUs it uses, its processes and its host, without touching it."""
