"""What is measured: each module has a `WORKLOAD`, which checks name by its file (`stream_overlap.py` is "stream-overlap").

This package travels (standard library only at module level, Python 3.8); a framework is imported inside of the functions.
"""
