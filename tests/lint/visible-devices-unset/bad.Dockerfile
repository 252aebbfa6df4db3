# expect: visible-devices-unset
FROM python:3.12-slim
RUN pip install torch --index-url https://download.pytorch.org/whl/cu128
