FROM nvcr.io/nvidia/pytorch:24.08-py3
# expect: ngc-entrypoint-replaced
ENTRYPOINT ["python", "train.py"]
FROM nvcr.io/nvidia/tritonserver:24.08-py3
# expect: ngc-entrypoint-replaced
ENTRYPOINT /start.sh
