"""Judging a program that does not move."""
