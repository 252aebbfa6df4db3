"""Files that people hand to somebody: Dockerfiles, a compose file, a traceback, a kernel log."""

DOCKERFILE = """\
FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04
RUN apt-get update && apt-get install -y python3-pip nvidia-driver-550
RUN pip install torch==2.5.1 --index-url https://download.pytorch.org/whl/cu124
RUN pip install flash-attn --no-build-isolation
"""
GOOD_DOCKERFILE = """\
FROM python:3.12-slim
RUN pip install torch==2.9.1
COPY train.py .
CMD ["python", "train.py"]
"""
COMPOSE = "services:\n  trainer:\n    image: pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime\n    command: python train.py\n"
NO_KERNEL = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 12, in <module>
    y = model(x.cuda())
RuntimeError: CUDA error: no kernel image is available for execution on the device
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
"""
OFF_THE_BUS = """\
[81234.123456] NVRM: GPU at PCI:0000:00:06: GPU-00000000-0000-4000-8000-000000000000
[81234.123460] NVRM: Xid (PCI:0000:00:06): 79, pid=4242, name=python3, GPU has fallen off the bus.
[81234.123470] NVRM: GPU 0000:00:06.0: GPU has fallen off the bus.
[81234.223470] NVRM: Xid (PCI:0000:00:06): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)
"""
