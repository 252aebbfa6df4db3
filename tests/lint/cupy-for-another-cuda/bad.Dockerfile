FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
# expect: cupy-for-another-cuda
RUN pip install cupy-cuda11x
