# expect: devel-base-in-final-stage
FROM nvidia/cuda:12.9.1-devel-ubuntu24.04
RUN apt-get update && apt-get install -y python3-pip
RUN pip install torch transformers
COPY app /app
CMD ["python3", "/app/main.py"]
