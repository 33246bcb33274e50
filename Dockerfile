# The recognition service. Build the wheel first: python -m build --wheel
#   docker build -t hypersphere --build-arg PIP_EXTRA_INDEX_URL=… .     (the index with the CPU builds of PyTorch)
#   docker run -p 8000:8000 -e HYPERSPHERE_KEYS=… -v galleries:/data hypersphere sface /data/known.db
FROM python:3.11-slim AS build
WORKDIR /build
ARG PIP_EXTRA_INDEX_URL
COPY tools/service_requirements.txt ./
COPY dist/*.whl ./
RUN python -m venv /opt/hypersphere \
 && /opt/hypersphere/bin/pip install --no-cache-dir --require-hashes -r service_requirements.txt \
 && /opt/hypersphere/bin/pip install --no-cache-dir --no-deps ./*.whl

FROM python:3.11-slim
RUN useradd --create-home --uid 10001 hypersphere && install -d -o hypersphere -g hypersphere /data
COPY --from=build /opt/hypersphere /opt/hypersphere
ENV PATH=/opt/hypersphere/bin:$PATH HYPERSPHERE_CACHE=/data/models PYTHONUNBUFFERED=1
USER hypersphere
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/v1/health', timeout=4)"]
ENTRYPOINT ["hypersphere", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["sface", "/data/known.db"]
