docker run --privileged nvidia/cuda:12.9.1-base-ubuntu24.04 ./train  # expect: privileged-for-gpu
