FROM python:3.12-slim
RUN pip install torch --index-url https://download.pytorch.org/whl/cu128
ENV NVIDIA_VISIBLE_DEVICES=all
# Plain pip: nobody said that this is for a GPU.
FROM python:3.12-slim
RUN pip install torch
