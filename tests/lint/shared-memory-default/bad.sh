IMAGE=nvcr.io/nvidia/pytorch:24.08-py3
# expect: shared-memory-default
docker run --gpus all -it --rm \
    -v "$PWD":/work \
    "$IMAGE"
docker run --gpus 2 vllm/vllm-openai:v0.9.0 --model some/model  # expect: shared-memory-default
