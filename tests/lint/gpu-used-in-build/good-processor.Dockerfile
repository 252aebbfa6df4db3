FROM python:3.12-slim AS tested
RUN pip install torch --index-url https://download.pytorch.org/whl/cpu
RUN python -c "import torch; assert not torch.cuda.is_available()"
RUN python -c "import torch; assert torch.cuda.device_count() == 0 and not torch.cuda.is_available(), 'a CUDA build'"
RUN python -c "import torch, sys; sys.exit(1 if torch.cuda.is_available() else 0)"
RUN python -c "import torch; \
    exit(0) if not torch.cuda.is_available() else exit('a GPU')"
RUN python <<EOF
import sys, torch
if torch.cuda.is_available():
    raise SystemExit("a GPU")
sys.exit(0)
torch.zeros(1).cuda()
EOF
FROM python:3.12-slim
RUN pip install torch --index-url https://download.pytorch.org/whl/cpu
RUN python -c "import torch; assert not torch.cuda.is_available()"
