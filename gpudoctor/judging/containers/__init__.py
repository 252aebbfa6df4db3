"""Judges containers: engines, toolkit, CDI, and why a container did not start. Pure."""
