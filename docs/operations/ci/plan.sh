#!/bin/sh
# plan.sh DIRECTORY OUT: check the documents below DIRECTORY, plan them, and write OUT/plan.md, the
# text for reviewers. With PUBLISH=yes each plan is also stored under its digest, so that the plan
# that is approved by its id is the one that runs.
#
# Ends with layoutctl's exit codes: 1 for a document that is wrong, 5 for a catalog that is down.
set -eu

layouts=$1
out=$2
mkdir -p "$out"

layoutctl validate "$layouts"
set -- -f "$layouts" -o markdown
[ "${PUBLISH:-no}" != yes ] || set -- "$@" --publish
layoutctl plan "$@" >"$out/plan.md"
