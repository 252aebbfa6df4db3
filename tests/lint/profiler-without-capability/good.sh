docker run --gpus all --cap-add SYS_ADMIN me/x ncu --set full ./a
docker run --gpus all me/x nsys profile ./a
docker run --gpus all $OPTIONS me/x ncu ./a
