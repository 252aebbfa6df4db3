# expect: cuda-tag-missing
FROM nvidia/cuda AS untagged
# expect: cuda-tag-missing
FROM nvidia/cuda:latest AS latest
# expect: cuda-tag-missing
FROM nvidia/cuda:10.2-cudnn7-devel-ubuntu18.04 AS old
# expect: cuda-tag-missing
FROM docker.io/nvidia/cuda:11.0-base AS two
# expect: cuda-tag-missing
FROM nvidia/cuda:12.4-runtime-ubuntu22.04 AS short
# expect: cuda-tag-missing
FROM nvidia/cuda:12.4.1-devel AS anywhere
# expect: cuda-tag-missing
FROM nvidia/cuda:12.6.3-cudnn9-devel-ubuntu22.04 AS numbered
# expect: cuda-tag-missing
FROM nvidia/cuda:12.4.1-cudnn-devel-ubuntu24.04 AS noble
# expect: cuda-tag-missing
FROM nvidia/cuda:13.0.1-base-ubuntu20.04 AS focal
# expect: cuda-tag-missing
FROM nvidia/cuda:11.7.0-base-ubuntu22.04 AS superseded
# expect: cuda-tag-missing
FROM nvidia/cuda:12.9.1
