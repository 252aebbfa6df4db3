FROM nvidia/cuda:12.9.1-devel-ubuntu24.04
ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs:/usr/local/cuda/compat:$LD_LIBRARY_PATH
RUN make test
ENV LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64
