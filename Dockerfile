# The program in an image, for docker-compose.yml. `make image` builds the static binary first; any base with /bin/sh will do,
# since agents run shell scripts.
ARG BASE=alpine:3.22
FROM ${BASE}
COPY bin/controller /usr/local/bin/controller
ENTRYPOINT ["/usr/local/bin/controller"]
