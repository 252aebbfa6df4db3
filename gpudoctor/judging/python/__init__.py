"""Judges Python environments and the libraries of frameworks. Pure."""
