FROM ubuntu:22.04
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      curl \
      # expect: driver-installed-in-image
      nvidia-utils-535 \
      # expect: driver-installed-in-image
      libnvidia-compute-535=535.183.01-0ubuntu0.22.04.1
# expect: driver-installed-in-image
RUN sudo apt install -y nvidia-driver-550
COPY NVIDIA-Linux-x86_64-550.54.14.run /tmp/
# expect: driver-installed-in-image
RUN sh /tmp/NVIDIA-Linux-x86_64-550.54.14.run --silent --no-kernel-module
