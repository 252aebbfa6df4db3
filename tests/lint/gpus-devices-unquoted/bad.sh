#!/bin/bash
GPUS=0,1
# expect: gpus-devices-unquoted
docker run --rm --gpus "device=$GPUS" --shm-size=8g ghcr.io/me/train python train.py
if ! output=$(sudo -E docker container run --gpus=device=2,3 -it me/x); then  # expect: gpus-devices-unquoted
    exit 1
fi
