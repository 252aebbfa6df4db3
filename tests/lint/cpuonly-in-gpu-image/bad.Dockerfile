FROM nvidia/cuda:12.9.1-base-ubuntu24.04
# expect: cpuonly-in-gpu-image
RUN conda install -y pytorch cpuonly -c pytorch
# expect: cpuonly-in-gpu-image
RUN pip install tensorflow-cpu
