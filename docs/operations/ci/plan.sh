#!/bin/sh
# plan.sh DIRECTORY OUT: check the documents below DIRECTORY, plan them, and leave in OUT the text
# for reviewers (plan.md) and, where work is planned, one frozen plan (plan.json). With PUBLISH=yes
# each plan is stored under its digest, so that what is approved by its id is what will run.
#
# Ends with layoutctl's exit codes: 1 for a document that is wrong, 5 for a catalog that is down.
set -eu

layouts=$1
out=$2
mkdir -p "$out"

layoutctl validate "$layouts"
if [ "${PUBLISH:-no}" = yes ]; then
  set -- --publish
else
  set --
fi
layoutctl plan -f "$layouts" -o markdown "$@" >"$out/plan.md"
