FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
ARG DEVICE=gpu
RUN if [ "$DEVICE" = cpu ]; then pip install torch --index-url https://download.pytorch.org/whl/cpu; fi
RUN [ "$DEVICE" = cpu ] && pip install torch --index-url https://download.pytorch.org/whl/cpu
RUN pip install onnx --index-url https://download.pytorch.org/whl/cpu
FROM python:3.12
RUN pip install torch --index-url https://download.pytorch.org/whl/cpu
