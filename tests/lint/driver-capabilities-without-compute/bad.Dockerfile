FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
# expect: driver-capabilities-without-compute
ENV NVIDIA_DRIVER_CAPABILITIES=utility
FROM ubuntu:24.04
ENV NVIDIA_VISIBLE_DEVICES=all
# expect: driver-capabilities-without-compute
ENV NVIDIA_DRIVER_CAPABILITIES=graphics,utility
RUN pip install torch
