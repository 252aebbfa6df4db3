FROM python:3.8
RUN pip install tensorflow-gpu==2.10.1
RUN pip install "tensorflow[and-cuda]"
