FROM python:3.12-slim AS packages
RUN pip install --prefix /packages cupy-cuda12x
FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
COPY --from=packages /packages /usr/local
