FROM python:3.11
# expect: tensorflow-gpu-removed
RUN pip install tensorflow-gpu
# expect: tensorflow-gpu-removed
RUN pip install "tensorflow-gpu>=2.12"
