FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
RUN echo /opt/mine/lib >> /etc/ld.so.conf && ldconfig
RUN echo /opt/mine/lib > /etc/ld.so.conf.d/mine.conf && ldconfig
RUN printf 'include /etc/ld.so.conf.d/*.conf\n/opt/lib\n' > /etc/ld.so.conf
