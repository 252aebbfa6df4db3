FROM python:3.12-alpine
# expect: musl-base-with-cuda
RUN pip install torch
FROM alpine:3.20 AS two
# expect: musl-base-with-cuda
RUN pip3 install cupy-cuda12x
