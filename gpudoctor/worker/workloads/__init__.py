"""What is measured: each module has a `WORKLOAD`, which checks name by its file (`stream_overlap.py` is "stream-overlap").

A framework is imported inside of the functions.
"""
