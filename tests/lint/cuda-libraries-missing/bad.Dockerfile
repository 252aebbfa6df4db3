FROM python:3.12-slim
# expect: cuda-libraries-missing
RUN pip install numpy cupy-cuda12x
FROM ubuntu:24.04
# expect: cuda-libraries-missing
RUN pip3 install onnxruntime-gpu==1.22.0
