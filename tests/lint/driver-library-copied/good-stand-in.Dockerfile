FROM python:3.12-slim
COPY tests/fake/nvidia-smi /usr/local/bin/nvidia-smi
