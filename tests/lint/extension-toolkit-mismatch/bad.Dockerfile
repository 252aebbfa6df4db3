FROM nvidia/cuda:11.8.0-devel-ubuntu22.04
# expect: extension-toolkit-mismatch
RUN pip install torch --index-url https://download.pytorch.org/whl/cu124
RUN git clone https://github.com/NVIDIA/apex
RUN cd apex && pip install -v --no-build-isolation ./
