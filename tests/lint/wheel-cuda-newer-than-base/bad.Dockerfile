FROM nvidia/cuda:11.8.0-runtime-ubuntu22.04
# expect: wheel-cuda-newer-than-base
RUN pip install torch --index-url https://download.pytorch.org/whl/cu124
