FROM nvidia/cuda:12.9.1-base-ubuntu24.04
RUN CONDA_OVERRIDE_CUDA=12.9 mamba install -y -c conda-forge pytorch
RUN conda install -y -c conda-forge pytorch-gpu
RUN conda install -y -c conda-forge "pytorch=*=*cuda*"
RUN conda install -y -c conda-forge pytorch cuda-version=12.9
RUN conda install -y pytorch pytorch-cuda=12.1 -c pytorch -c nvidia
FROM condaforge/miniforge3
RUN conda install -y -c conda-forge pytorch
