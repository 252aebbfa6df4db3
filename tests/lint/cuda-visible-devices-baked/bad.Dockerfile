FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
# expect: cuda-visible-devices-baked
ENV CUDA_VISIBLE_DEVICES=0,1
