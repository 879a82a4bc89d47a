# docker build -f deploy/docker/ray.Dockerfile -t penstock-ray:0.1.0 .   after the engine's image, which this adds Ray to.
# KubeRay starts `ray start` in it; Serve imports deploy.ray.app from /opt/penstock/app.
ARG ENGINE=penstock-engine:0.1.0
FROM ${ENGINE}
ARG RAY_VERSION=2.60.0
USER 0:0
LABEL org.opencontainers.image.title="penstock-ray" org.opencontainers.image.version="0.1.0"
RUN /opt/penstock/bin/pip install --no-cache-dir "ray[serve]==${RAY_VERSION}"
COPY deploy/__init__.py /opt/penstock/app/deploy/
COPY deploy/ray /opt/penstock/app/deploy/ray
ENV PYTHONPATH=/opt/penstock/app RAY_USAGE_STATS_ENABLED=0
USER 65532:65532
HEALTHCHECK NONE
ENTRYPOINT []
CMD ["bash"]
