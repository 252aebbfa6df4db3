docker run --privileged --gpus all me/x
docker run --privileged=false --gpus device=1 me/x
docker run --cap-add SYS_PTRACE --gpus device=1 me/x
