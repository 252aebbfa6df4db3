FROM nvcr.io/nvidia/pytorch:24.08-py3
# expect: ngc-torch-replaced
RUN pip install --upgrade torch==2.5.1 transformers
# expect: ngc-torch-replaced
RUN python -m venv /opt/other && pip install "torch>=2.5"
# expect: ngc-torch-replaced
RUN /usr/bin/pip install torchvision==0.20.1
# expect: ngc-torch-replaced
RUN pip install torchaudio
# expect: ngc-torch-replaced
RUN pip install --no-deps torch==2.4.0
# expect: ngc-torch-replaced
RUN uv pip install --system torch==2.4.0
