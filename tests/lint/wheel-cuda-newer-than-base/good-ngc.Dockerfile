FROM nvcr.io/nvidia/pytorch:24.08-py3
RUN python -m venv /opt/v && /opt/v/bin/pip install torch --index-url https://download.pytorch.org/whl/cu130
RUN pip install --no-deps torchaudio --index-url https://download.pytorch.org/whl/cu124
