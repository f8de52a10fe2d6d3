# kvfate in a container: the wheel is built in the first stage; the second has Python and the wheel alone.
#   docker build -t kvfate .
#   docker run --rm -v "$PWD:/work" -v "$HOME/.cache/kvfate:/cache" kvfate run -f prompt.txt -o x.kvf
FROM debian:12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
        gcc meson ninja-build pkg-config libc6-dev \
        libcairo2-dev libpango1.0-dev libharfbuzz-dev libpng-dev zlib1g-dev libcjson-dev libzstd-dev \
        libminizip-dev libsqlite3-dev libxxhash-dev libpcre2-dev libutf8proc-dev liblapack3 \
        fonts-lato fonts-dejavu-core fonts-noto-cjk fonts-noto-color-emoji \
        ca-certificates python3 python3-pip \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN python3 -m pip wheel --no-deps -w /wheels /src/python

FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
RUN python3 -m venv /opt/kvfate && /opt/kvfate/bin/pip install --no-cache-dir /wheels/kvfate-*.whl && rm -r /wheels
ENV PATH=/opt/kvfate/bin:$PATH KVFATE_CACHE=/cache
VOLUME ["/cache"]
WORKDIR /work
ENTRYPOINT ["kvfate"]
CMD ["-h"]
