"""Judges driver installations, kernel modules and NVIDIA services. Pure."""
