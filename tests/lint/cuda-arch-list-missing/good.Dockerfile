FROM nvidia/cuda:12.9.1-devel-ubuntu24.04 AS one
ARG TORCH_CUDA_ARCH_LIST="8.0;9.0"
RUN pip install 'git+https://github.com/facebookresearch/detectron2.git'
FROM nvidia/cuda:12.9.1-devel-ubuntu24.04 AS two
RUN export TORCH_CUDA_ARCH_LIST=9.0 && pip install 'git+https://github.com/facebookresearch/detectron2.git'
# These choose for themselves.
RUN pip install git+https://github.com/NVIDIA/apex && pip install flash-attn
