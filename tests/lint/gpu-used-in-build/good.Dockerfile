FROM nvidia/cuda:12.9.1-devel-ubuntu24.04
RUN nvidia-smi || true
RUN which nvidia-smi; if command -v nvidia-smi; then nvidia-smi; fi
RUN nvidia-smi && echo a GPU || echo none
RUN (nvidia-smi; nvcc --version) || true
RUN bash -c 'nvidia-smi' || true
RUN ! nvidia-smi
RUN set -e; nvidia-smi && echo a GPU; make
RUN if [ -n "$(nvidia-smi)" ]; then make gpu; fi; echo "$(nvidia-smi -L)"
RUN look() { nvidia-smi; }; make
RUN <<EOF
nvidia-smi
make
EOF
RUN make && python -c "import torch; print(torch.__version__, torch.cuda.is_available())"
RUN --device=nvidia.com/gpu=all nvidia-smi
RUN echo 'nvidia-smi' > /usr/local/bin/look && cat <<EOF > /look.py
import torch
assert torch.cuda.is_available()
EOF
RUN cat <<EOF > /look.py && python -m compileall /look.py
import torch
torch.zeros(1).cuda()
EOF
RUN python -c "import torch; x = torch.zeros(1).to('cuda' if torch.cuda.is_available() else 'cpu')"
RUN python -c "import torch; print(torch.zeros(1).cuda() if torch.cuda.is_available() else None)"
RUN python -c "import torch; d = torch.device('cuda'); f = lambda x: x.cuda(); print(torch.version.cuda)"
RUN python - <<EOF
import torch
def work(x):
    return x.cuda()
try:
    torch.cuda.current_device()
except RuntimeError:
    print("no GPU, as expected")
if torch.cuda.is_available():
    work(torch.zeros(1))
EOF
RUN python <<EOF || true
import torch
torch.zeros(1).cuda()
EOF
RUN python -c "assert True; print('model.cuda()', \"device='cuda'\")"
COPY fake/nvidia-smi /usr/local/bin/nvidia-smi
RUN nvidia-smi
CMD ["nvidia-smi"]
