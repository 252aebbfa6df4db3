"""Judging a user's program that runs."""
