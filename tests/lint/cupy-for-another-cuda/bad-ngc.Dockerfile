FROM nvcr.io/nvidia/pytorch:25.10-py3
# expect: cupy-for-another-cuda
RUN pip install cupy-cuda12x
