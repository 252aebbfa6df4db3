# Docker in Docker: here the engine is in the image.
FROM ubuntu:24.04
RUN apt-get update && apt-get install -y docker.io nvidia-container-toolkit
FROM docker:28-dind
RUN apk add nvidia-container-toolkit
