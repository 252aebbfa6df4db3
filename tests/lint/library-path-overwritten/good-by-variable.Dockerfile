FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
ARG PATHS
ENV ALL=/opt/mine/lib:$LD_LIBRARY_PATH
ENV LD_LIBRARY_PATH=$ALL
FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
ARG PATHS
ENV LD_LIBRARY_PATH=$PATHS
