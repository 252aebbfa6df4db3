FROM nvidia/cuda:12.9.1-devel-ubuntu24.04 AS build
RUN pip install torch
FROM nvidia/cuda:12.9.1-devel-ubuntu24.04
# It may compile when it runs.
RUN pip install torch deepspeed
