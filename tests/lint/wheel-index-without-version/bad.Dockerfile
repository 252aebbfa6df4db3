FROM python:3.11
ENV NVIDIA_VISIBLE_DEVICES=all
ARG CUDA=124
# expect: wheel-index-without-version
RUN pip install --no-cache-dir torch==2.9.1 --index-url https://download.pytorch.org/whl/cu${CUDA}
# expect: wheel-index-without-version
RUN pip3 install "torch==2.1.2+cu124" -f https://download.pytorch.org/whl/torch_stable.html
# expect: wheel-index-without-version
RUN uv pip install --system torch==2.4.1 --torch-backend=cu128
# expect: wheel-index-without-version
RUN python -m pip install torch==2.3.1 --extra-index-url=https://download.pytorch.org/whl/cu124
