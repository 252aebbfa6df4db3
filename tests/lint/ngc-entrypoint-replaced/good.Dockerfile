FROM nvcr.io/nvidia/pytorch:24.08-py3
ENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh", "python", "train.py"]
FROM nvcr.io/nvidia/pytorch:24.08-py3
CMD ["python", "train.py"]
FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
ENTRYPOINT ["python", "train.py"]
