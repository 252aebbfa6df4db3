FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04 AS export
RUN pip install tensorflow-cpu && python3 export.py
FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
COPY --from=export /model /model
