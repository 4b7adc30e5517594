# SPDX-License-Identifier: Apache-2.0
# The agent's image, for any architecture that the agent knows: hack/image, or
#   docker build --build-arg REVISION=$(git rev-parse HEAD) -t ingero .
# docs and tests are not in the context (.dockerignore): they change more often than the agent.

FROM debian:bookworm-slim AS builder
WORKDIR /src
# First what seldom changes: the packages stay a layer that later builds take as it is.
COPY hack/lib.sh hack/setup hack/
RUN hack/setup --build && rm -rf /var/lib/apt/lists/*
COPY hack/build hack/
COPY CMakeLists.txt CMakePresets.json ./
COPY cmake cmake
COPY bpf bpf
COPY node-agent node-agent
# There is no repository in here that could be asked.
ARG REVISION=unknown
RUN INGERO_REVISION=$REVISION hack/build && strip --strip-unneeded -o /ingero build/ingero

FROM debian:bookworm-slim
# What `ldd build/ingero` names; `ingero version` below fails when one is missing.
RUN apt-get -qq update \
  && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
    libbpf1 libcpp-httplib0.11 libelf1 libfmt9 libprometheus-cpp-core1.0 libspdlog1.10 libsqlite3-0 libssl3 \
    libstdc++6 libyaml-cpp0.7 zlib1g \
  && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/debconf /var/log/*
COPY LICENSE LICENSES /usr/share/doc/ingero/
COPY --from=builder /ingero /usr/local/bin/ingero
RUN ingero version
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="ingero" \
  org.opencontainers.image.description="Node agent: exact NCCL and CUDA metrics per container, by eBPF" \
  org.opencontainers.image.source="https://ingero.io" \
  org.opencontainers.image.licenses="Apache-2.0 AND GPL-2.0-only" \
  org.opencontainers.image.version="${VERSION}" \
  org.opencontainers.image.revision="${REVISION}"
ENTRYPOINT ["/usr/local/bin/ingero"]
