FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04 AS one
ENV LD_LIBRARY_PATH=/opt/mine/lib:${LD_LIBRARY_PATH}
ENV LD_LIBRARY_PATH=/opt/other/lib
FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04 AS two
ENV LD_LIBRARY_PATH=/opt/mine/lib:/usr/local/nvidia/lib64
FROM nvidia/cuda:12.9.1-devel-ubuntu24.04 AS build
ENV LD_LIBRARY_PATH=/opt/build/lib
RUN make
FROM ubuntu:24.04
ENV LD_LIBRARY_PATH=/opt/mine/lib
COPY --from=build /out /opt
