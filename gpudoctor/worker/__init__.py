"""The code that runs in the examined Python: standard library only, Python 3.8."""

import os

FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder of the package `gpudoctor` in the target: a different one in each run."""
