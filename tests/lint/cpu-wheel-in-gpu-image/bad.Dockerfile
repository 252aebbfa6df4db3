FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
# expect: cpu-wheel-in-gpu-image
RUN pip install torch torchvision --index-url https://download.pytorch.org/whl/cpu
# expect: cpu-wheel-in-gpu-image
RUN pip install torch==2.6.0+cpu
