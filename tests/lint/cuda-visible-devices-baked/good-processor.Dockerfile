FROM python:3.12-slim
ENV CUDA_VISIBLE_DEVICES=-1 NVIDIA_VISIBLE_DEVICES=void
RUN pip install torch --index-url https://download.pytorch.org/whl/cpu
