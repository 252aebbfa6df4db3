FROM nvidia/cuda:12.1.1-runtime-ubuntu22.04
RUN pip install torch --index-url https://download.pytorch.org/whl/cu128
FROM python:3.12
ENV NVIDIA_VISIBLE_DEVICES=all
RUN pip install torch --index-url https://download.pytorch.org/whl/cu130
