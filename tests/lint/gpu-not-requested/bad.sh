docker run -it --rm nvidia/cuda:12.9.1-base-ubuntu24.04 bash  # expect: gpu-not-requested
podman run --rm vllm/vllm-openai:v0.9.0 --model x | tee log  # expect: gpu-not-requested
