FROM ubuntu:20.04
# expect: cuda-repository-key-rotated
RUN apt-key adv --fetch-keys https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2004/x86_64/7fa2af80.pub
# expect: cuda-repository-key-rotated
RUN apt-key adv --keyserver keyserver.ubuntu.com --recv-keys 7fa2af80
# expect: cuda-repository-key-rotated
ADD https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2004/x86_64/7fa2af80.pub /tmp/key.pub
