"""The workloads: each module has a `WORKLOAD`, which checks name by its file (`stream_overlap.py` is "stream-overlap").

Frameworks are imported inside functions.
"""
