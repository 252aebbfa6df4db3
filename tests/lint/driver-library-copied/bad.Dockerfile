FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
# expect: driver-library-copied
COPY lib/libcuda.so.1 /usr/lib/
# expect: driver-library-copied
COPY ["libnvidia-ml.so.550.54.14", "/usr/lib/libnvidia-ml.so.1"]
# expect: driver-library-copied
ADD blobs/cuda.so.1 /usr/lib/libcuda.so.1
