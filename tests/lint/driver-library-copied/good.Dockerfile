FROM nvidia/cuda:12.9.1-devel-ubuntu24.04 AS build
COPY libcuda.so.1 /usr/local/lib/
RUN nvcc -o /program program.cu
FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
COPY --from=build /program /usr/bin/
COPY --from=build /usr/local/cuda/lib64/stubs/libcuda.so /opt/stubs/libcuda.so
COPY libcudart.so.12 libcudnn.so.9 libnvidia-container.so.1 /usr/local/lib/
