FROM nvcr.io/nvidia/pytorch:24.08-py3
# expect: wheel-cuda-newer-than-base
RUN pip install --no-deps torchaudio --index-url https://download.pytorch.org/whl/cu130
