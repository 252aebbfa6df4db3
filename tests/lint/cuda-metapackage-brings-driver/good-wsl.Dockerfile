FROM ubuntu:24.04
RUN curl -O https://developer.download.nvidia.com/compute/cuda/repos/wsl-ubuntu/x86_64/cuda-keyring_1.1-1_all.deb
RUN dpkg -i cuda-keyring_1.1-1_all.deb && apt-get update && apt-get install -y cuda
