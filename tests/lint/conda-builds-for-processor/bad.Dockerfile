FROM nvidia/cuda:12.9.1-base-ubuntu24.04
# expect: conda-builds-for-processor
RUN mamba install -y -c conda-forge python=3.12 pytorch torchvision
