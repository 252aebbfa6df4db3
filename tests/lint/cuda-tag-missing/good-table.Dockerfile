FROM nvidia/cuda:11.6.1-base-ubuntu20.04 AS one
FROM nvidia/cuda:11.4.3-base-ubuntu20.04 AS two
FROM nvidia/cuda:13.4.1-base-ubuntu26.04
