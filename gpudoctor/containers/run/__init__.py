"""Starts a container for the user."""
