FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
# expect: visible-devices-hides-gpus
ENV NVIDIA_VISIBLE_DEVICES=void
FROM pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime
# expect: visible-devices-hides-gpus
ENV NVIDIA_VISIBLE_DEVICES none
