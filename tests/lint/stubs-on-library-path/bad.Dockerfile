FROM nvidia/cuda:12.9.1-devel-ubuntu24.04
# expect: stubs-on-library-path
ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs:$LD_LIBRARY_PATH
