GPU ?= 0
run:
	# expect: gpus-counts-none
	@docker run --rm --gpus $(GPU) -v $$PWD:/work me/x
