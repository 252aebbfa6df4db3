docker run --privileged --gpus device=1 me/x  # expect: privileged-shows-all-gpus
