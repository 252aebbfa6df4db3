FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
ENV NVIDIA_VISIBLE_DEVICES=all
# An image that runs beside GPU jobs and wants none itself.
FROM alpine:3.20
ENV NVIDIA_VISIBLE_DEVICES=void
