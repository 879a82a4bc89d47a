# docker build -f deploy/docker/engine.Dockerfile -t penstock-engine:0.1.0 .
# For a GPU: --build-arg EXTRAS=[gpu]; torch's default wheels on Linux bring CUDA with them. For a CPU alone name the
# index of torch's smaller wheels: --build-arg TORCH_INDEX_URL=…
ARG BASE=python:3.11.11-slim-bookworm
FROM ${BASE} AS build
ARG EXTRAS=[engine]
ARG TORCH_INDEX_URL=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/penstock
WORKDIR /src
# The lock's versions without its hashes: torch's wheels for a CPU are other files of the same version.
COPY pyproject.toml deploy/docker/requirements.py requirements/engine.lock ./
RUN python requirements.py engine pyproject.toml > requirements.txt \
 && python requirements.py constraints engine.lock > constraints.txt \
 && /opt/penstock/bin/pip install ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"} -c constraints.txt -r requirements.txt
COPY README.md LICENSE ./
COPY gateway gateway
COPY routing_policies routing_policies
COPY engine engine
# -P: the installed package, not the source beside it, which the image does not keep.
RUN /opt/penstock/bin/pip install ".${EXTRAS}" \
 && ln -s "$(/opt/penstock/bin/python -P -c 'import engine.bundled as b; print(*b.__path__)')/models" /opt/penstock/models
# A real model beside the bundled toys: --model smollm2-135m-instruct.
RUN XDG_CACHE_HOME=/tmp/prepared /opt/penstock/bin/python -P -m engine models pull smollm2-135m-instruct

FROM ${BASE}
LABEL org.opencontainers.image.title="penstock-engine" org.opencontainers.image.version="0.1.0"
COPY --from=build /opt/penstock /opt/penstock
RUN useradd --uid 65532 --no-create-home --shell /usr/sbin/nologin penstock \
 && install -d -o penstock -g penstock /var/lib/penstock
ENV PATH=/opt/penstock/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/var/lib/penstock
USER 65532:65532
WORKDIR /var/lib/penstock
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=120s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/livez', timeout=2)"]
ENTRYPOINT ["penstock", "engine"]
CMD ["--model", "/opt/penstock/models/penstock-small", "--name", "penstock-small", "--listen", "0.0.0.0:8000"]
