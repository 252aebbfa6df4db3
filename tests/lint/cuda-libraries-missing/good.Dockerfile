FROM python:3.12-slim AS one
# torch brings its own CUDA, jax and tensorflow do so by these extras.
RUN pip install torch "jax[cuda12]" "tensorflow[and-cuda]"
FROM python:3.12-slim AS two
RUN pip install "cupy-cuda12x[ctk]" "onnxruntime-gpu[cuda,cudnn]"
FROM python:3.12-slim AS three
RUN pip install cupy-cuda12x nvidia-cublas-cu12
FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04 AS four
RUN pip install cupy-cuda12x onnxruntime-gpu
FROM python:3.12-slim AS five
COPY --from=four /usr/local/cuda /usr/local/cuda
RUN pip install cupy-cuda12x
FROM some/base:with-anything AS six
RUN pip install cupy-cuda12x
FROM ubuntu:24.04
RUN apt-get install -y cuda-libraries-12-9 && pip install cupy-cuda12x
