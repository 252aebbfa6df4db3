FROM nvidia/cuda:12.9.1-devel-ubuntu24.04 AS build
# To link against; nothing of this stage but one program is kept.
RUN apt-get update && apt-get install -y libnvidia-compute-550 libnvidia-ml-dev nvidia-cuda-toolkit cuda-driver-dev-12-9
FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
RUN apt-get install -y libnvidia-egl-wayland1 nvidia-modprobe cuda-nvml-dev-12-9 && apt-get remove -y nvidia-driver-550
RUN apt-get install -y cuda-drivers-fabricmanager- nvidia-driver-550- cuda-toolkit-12-9
RUN apt-get install -y libnvidia-compute-550 && make && apt-get purge -y libnvidia-compute-550
RUN dnf install -y --exclude nvidia-driver cuda-toolkit-12-9 && apt-get install --download-only nvidia-utils-550
RUN apt-get install -y nvidia-driver-assistant && sh NVIDIA-Linux-x86_64-550.54.14.run --extract-only
COPY --from=build /src/program /usr/local/bin/
