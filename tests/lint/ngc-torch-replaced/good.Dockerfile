FROM nvcr.io/nvidia/pytorch:24.08-py3 AS one
RUN pip install transformers torchmetrics && pip uninstall -y torch
RUN pip download torch && pip install -t /elsewhere torch
RUN pip install --no-deps torchaudio && pip install --no-deps torchvision==0.19.0
RUN pip install torchaudio --no-deps --no-build-isolation git+https://github.com/pytorch/audio.git
RUN python -m venv /opt/v && /opt/v/bin/pip install torch==2.4.0
RUN python3 -m venv .venv && . .venv/bin/activate && pip install torch==2.4.0
RUN pip install -c /etc/pip/constraint.txt torch torchvision torchaudio
RUN pip install torch torchvision && pip install "torch>=2.0,<3" "torch==2.5.0a0+872d972e41.nv24.8"
RUN pip install torch==$TORCH && pip --python /opt/v install torch==2.4.0
RUN uv venv /opt/u && uv pip install --python /opt/u torch==2.4.0 && uv pip install torch==2.4.0
RUN uv add torch==2.4.0 && pipx install torch==2.4.0
FROM nvcr.io/nvidia/pytorch:24.08-py3 AS two
RUN virtualenv /opt/v
ENV PATH=/opt/v/bin:$PATH
RUN pip install torch==2.4.0
FROM nvcr.io/nvidia/tensorflow:24.08-tf2-py3
RUN pip install torch
