FROM python:3.8
ARG VERSION
RUN pip install "tensorflow-gpu>=2.4,<2.12"
RUN pip install "tensorflow-gpu==2.10.*" && pip install tensorflow-gpu==$VERSION
RUN pip install tensorflow-gpu --index-url https://pypi.example.org/simple
