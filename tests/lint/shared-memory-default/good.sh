docker run --gpus all --ipc=host nvcr.io/nvidia/pytorch:24.08-py3 python train.py
docker run --gpus all --shm-size 8g nvcr.io/nvidia/pytorch:24.08-py3 python train.py
docker run --gpus all -v /dev/shm:/dev/shm nvcr.io/nvidia/pytorch:24.08-py3 python train.py
docker run --gpus all "${OPTIONS[@]}" nvcr.io/nvidia/pytorch:24.08-py3 python train.py
docker run --gpus all nvcr.io/nvidia/pytorch:24.08-py3 nvidia-smi
# gpudoctor: ignore=shared-memory-default
docker run --gpus all \
    nvcr.io/nvidia/pytorch:24.08-py3 python infer.py
