#!/bin/sh
# build.sh OUT: the helm client, from the version pinned as a tool in go.mod.
set -eu
exec go build -trimpath -ldflags "-s -w" -o "$1" helm.sh/helm/v4/cmd/helm
