docker run --gpus all --device=/dev/infiniband --ulimit memlock=-1 me/x
docker run --gpus all --device=/dev/infiniband --cap-add=IPC_LOCK me/x
