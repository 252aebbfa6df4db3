FROM nvidia/cuda:12.4.1-devel-ubuntu22.04
RUN pip install torch --index-url https://download.pytorch.org/whl/cu128
RUN git clone https://github.com/NVIDIA/apex && cd apex && pip install .
