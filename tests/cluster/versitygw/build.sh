#!/bin/sh
# build.sh OUT: the S3 gateway over a directory, from the version pinned as a tool in go.mod.
set -eu
exec go build -trimpath -ldflags "-s -w" -o "$1" github.com/versity/versitygw/cmd/versitygw
