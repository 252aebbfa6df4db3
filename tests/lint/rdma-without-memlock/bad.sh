docker run --gpus all --device=/dev/infiniband/uverbs0 me/x  # expect: rdma-without-memlock
