FROM python:3.12-alpine
RUN apk add --no-cache curl && pip install requests
FROM python:3.12-slim
RUN pip install torch
