FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
RUN pip install cupy-cuda12x
FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
RUN pip install "cupy-cuda13x[ctk]"
