docker run -it --rm --gpus all vllm/vllm-openai:v0.9.0 --model some/model
docker run -it --rm me/x python train.py --gpus all
docker run -it --rm --gpus all me/x --gpus all
