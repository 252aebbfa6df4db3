FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
# expect: cuda-compiler-missing
RUN pip install torch && pip install flash-attn --no-build-isolation
FROM python:3.11
# expect: cuda-compiler-missing
RUN pip install "git+https://github.com/facebookresearch/pytorch3d.git@stable"
