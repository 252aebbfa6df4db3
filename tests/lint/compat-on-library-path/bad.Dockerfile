FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
# expect: compat-on-library-path
ENV LD_LIBRARY_PATH=/usr/local/cuda/compat:$LD_LIBRARY_PATH
# expect: compat-on-library-path
RUN echo /usr/local/cuda-12.9/compat > /etc/ld.so.conf.d/00-compat.conf && ldconfig
