docker run --rm --gpus '"device=0,1"' me/x
docker run --rm --gpus "\"device=0,1\"" me/x
docker run --rm --gpus device=0 me/x
docker run --rm --gpus device=$GPUS me/x
docker run --rm --gpus 'all,"capabilities=compute,utility"' me/x
echo "docker run --gpus device=0,1 me/x"
# docker run --gpus device=0,1 me/x
