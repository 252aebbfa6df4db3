FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
# expect: linker-configuration-overwritten
RUN echo "/opt/mine/lib" > /etc/ld.so.conf && ldconfig
