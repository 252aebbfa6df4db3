GPU ?= 0
run:
	@docker run --rm --gpus device=$(GPU) -v $$PWD:/work me/x
	-docker run --rm --gpus 1 me/x
	docker run --rm --gpus $(OTHER) me/x
