FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
# expect: require-check-disabled
ENV NVIDIA_DISABLE_REQUIRE=1
