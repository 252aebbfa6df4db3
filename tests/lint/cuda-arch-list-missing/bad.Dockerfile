FROM nvidia/cuda:12.9.1-devel-ubuntu24.04
RUN git clone https://github.com/IDEA-Research/GroundingDINO.git /opt/GroundingDINO
# expect: cuda-arch-list-missing
RUN cd /opt/GroundingDINO && pip install --no-build-isolation .
# expect: cuda-arch-list-missing
RUN FORCE_CUDA=1 pip install 'git+https://github.com/facebookresearch/detectron2.git'
