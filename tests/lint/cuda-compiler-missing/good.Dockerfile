FROM nvidia/cuda:12.9.1-devel-ubuntu24.04
RUN pip install torch && pip install flash-attn --no-build-isolation
FROM python:3.11
RUN pip install https://github.com/Dao-AILab/flash-attention/releases/download/v2.8.0/flash_attn-2.8.0+cu12torch2.7-cp311-cp311-linux_x86_64.whl
RUN FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE pip install flash-attn
RUN pip install torch xformers deepspeed bitsandbytes
FROM nvidia/cuda:12.9.1-base-ubuntu24.04
RUN apt-get update && apt-get install -y cuda-nvcc-12-9 cuda-cudart-dev-12-9 && pip install flash-attn
FROM some/image:1
RUN pip install flash-attn
