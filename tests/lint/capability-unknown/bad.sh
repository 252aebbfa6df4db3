podman run --device nvidia.com/gpu=all --cap-add=cap_gpu me/x  # expect: capability-unknown
