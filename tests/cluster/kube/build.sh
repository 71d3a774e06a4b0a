#!/bin/sh
# build.sh OUT: the multi-call binary, reproducible. Kubernetes reports the version that is stamped
# here, so it must be the one in go.mod.
set -eu
version=$(sed -n 's/^[[:space:]]*k8s.io\/kubernetes v//p' go.mod)
stamp=k8s.io/component-base/version
minor=${version#*.}
exec go build -trimpath -o "$1" -ldflags "-s -w \
  -X $stamp.gitVersion=v$version -X $stamp.gitMajor=${version%%.*} -X $stamp.gitMinor=${minor%%.*} \
  -X $stamp.gitCommit=tests -X $stamp.gitTreeState=clean -X $stamp.buildDate=1970-01-01T00:00:00Z" .
