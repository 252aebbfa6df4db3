"""gpudoctor: what is wrong with this GPU machine, container or Python environment, and what to type to fix it."""

__version__ = "0.1.0"
