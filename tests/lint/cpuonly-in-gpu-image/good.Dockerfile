FROM python:3.12
RUN pip install tensorflow-cpu
FROM nvidia/cuda:12.9.1-base-ubuntu24.04
RUN pip install "tensorflow[and-cuda]" faiss-cpu
