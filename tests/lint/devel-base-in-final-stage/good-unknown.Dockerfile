FROM nvidia/cuda:12.9.1-devel-ubuntu24.04
RUN pip install torch
COPY requirements.txt /
RUN pip install -r /requirements.txt
