ARG CUDA=12.9.1
ARG UNKNOWN
ARG PLACEHOLDER=notset
FROM nvidia/cuda:${CUDA}-cudnn-runtime-ubuntu24.04 AS one
FROM nvcr.io/nvidia/cuda:12.4.1-base-ubi9 AS two
FROM nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04 AS three
FROM nvidia/cuda:${UNKNOWN}-base-ubuntu22.04 AS four
FROM nvidia/cuda:${PLACEHOLDER}-base-ubuntu22.04 AS five
FROM nvidia/cuda:13.0.1-tensorrt-devel-ubuntu24.04 AS six
FROM registry.example:5000/mirror/cuda:latest AS seven
FROM nvidia/cuda@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
