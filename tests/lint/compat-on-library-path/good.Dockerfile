FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
ENV LD_LIBRARY_PATH=/opt/llama/compat:$LD_LIBRARY_PATH
RUN rm -rf /usr/local/cuda/compat && echo /usr/local/cuda/lib64 > /etc/ld.so.conf.d/cuda.conf && ldconfig
