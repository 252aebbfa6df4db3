FROM nvidia/cuda:12.9.1-base-ubuntu24.04
# expect: container-toolkit-in-image
RUN apt-get update && apt-get install -y nvidia-container-toolkit
# expect: container-toolkit-in-image
RUN apt-get install -y nvidia-docker2
