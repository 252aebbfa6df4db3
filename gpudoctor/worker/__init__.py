"""What runs in the examined Python. Everything below this folder travels: standard library only, Python 3.8."""

import os

FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""Where the package `gpudoctor` lies in the target: another folder in each run."""
