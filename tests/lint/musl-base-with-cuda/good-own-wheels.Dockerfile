FROM python:3.12-alpine
RUN pip install torch==2.6.0 --extra-index-url https://wheels.example.org/musl
