FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04 AS tried
# expect: gpu-used-in-build
RUN nvidia-smi
FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
# expect: gpu-used-in-build
RUN nvidia-smi
# expect: gpu-used-in-build
RUN pip install torch && python3 -c "import torch; assert torch.cuda.is_available()"
# expect: gpu-used-in-build
RUN ["python", "-c", "import torch; torch.zeros(1).cuda()"]
# expect: gpu-used-in-build
RUN python3 <<EOF
import torch
model = torch.nn.Linear(1, 1).to("cuda")
EOF
# expect: gpu-used-in-build
RUN set -e; cd /src; python -u -c "import torch; assert torch.cuda.device_count() > 0, 'no GPU'"; cd /
# expect: gpu-used-in-build
RUN python -c 'import sys, torch; x = torch.zeros(1, device="cuda:0") if not torch.cuda.is_available() else 0'
RUN <<EOF
set -e
# expect: gpu-used-in-build
V=$(nvidia-smi --query-gpu=name --format=csv)
EOF
