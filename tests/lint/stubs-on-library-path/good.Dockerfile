FROM nvidia/cuda:12.9.1-devel-ubuntu24.04 AS build
ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs:$LD_LIBRARY_PATH
RUN make test
FROM nvidia/cuda:12.9.1-devel-ubuntu24.04
ENV LIBRARY_PATH=/usr/local/cuda/lib64/stubs
COPY --from=build /out /opt
