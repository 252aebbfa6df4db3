docker run --rm nvidia/cuda:12.9.1-devel-ubuntu24.04 nvcc --version
docker run --rm vllm/vllm-openai:v0.9.0 --help
docker run --rm --device nvidia.com/gpu=all nvidia/cuda:12.9.1-base-ubuntu24.04 bash
docker run --rm $GPU_ARGS nvidia/cuda:12.9.1-base-ubuntu24.04 bash
docker build -t nvidia/cuda:12.9.1-base-ubuntu24.04 .
docker compose run nvidia/cuda:12.9.1-base-ubuntu24.04 bash
