FROM ubuntu:22.04
RUN apt-get update && apt-get install -y cuda-toolkit-12-4 cuda-libraries-12-4 cuda-cudart-12-4 cuda-keyring
RUN curl -LO https://developer.download.nvidia.com/compute/cuda/repos/wsl-ubuntu/x86_64/cuda-keyring_1.1-1_all.deb \
 && dpkg -i cuda-keyring_1.1-1_all.deb && apt-get update && apt-get install -y cuda # of wsl-ubuntu
RUN conda install -y cuda -c nvidia
