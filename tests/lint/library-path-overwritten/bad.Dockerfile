FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
ENV A=1 \
    # expect: library-path-overwritten
    LD_LIBRARY_PATH=/opt/mine/lib
FROM nvcr.io/nvidia/pytorch:24.08-py3
# expect: library-path-overwritten
ENV LD_LIBRARY_PATH "/opt/mine/lib:/usr/local/cuda/lib64"
