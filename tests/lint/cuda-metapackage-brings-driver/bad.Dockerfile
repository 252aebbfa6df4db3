FROM ubuntu:22.04
# expect: cuda-metapackage-brings-driver
RUN apt-get update && apt-get install -y cuda
# expect: cuda-metapackage-brings-driver
RUN apt-get install -y cuda-12-4=12.4.1-1
# expect: cuda-metapackage-brings-driver
RUN dnf -y install cuda-runtime-12-4
