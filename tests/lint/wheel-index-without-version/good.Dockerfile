FROM python:3.11
ENV NVIDIA_VISIBLE_DEVICES=all
ARG TORCH
ARG VARIANT=cu124
RUN pip install torch==2.9.1 --index-url https://download.pytorch.org/whl/cu128
RUN pip install torch==2.5.1+cu124 --extra-index-url https://download.pytorch.org/whl/$VARIANT
RUN pip install torch==${TORCH} --index-url https://download.pytorch.org/whl/cu111
RUN pip install --pre torch --index-url https://download.pytorch.org/whl/nightly/cu134
RUN pip install "torch>=2.4" --index-url https://download.pytorch.org/whl/cu124
RUN if [ "$VARIANT" = old ]; then pip install torch==2.9.1 --index-url https://download.pytorch.org/whl/cu118; fi
RUN pip install -r requirements.txt --index-url https://download.pytorch.org/whl/cu118
