"""The version of gpudoctor."""

__version__ = "0.1.0"
