docker run -it --rm vllm/vllm-openai:v0.9.0 --gpus all --model some/model  # expect: run-option-after-image
docker run -itv "$PWD":/work me/x --runtime=nvidia  # expect: run-option-after-image
