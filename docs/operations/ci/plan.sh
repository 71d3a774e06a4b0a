#!/bin/sh
# plan.sh DIRECTORY OUT [BASE]: check the documents below DIRECTORY, plan them, and write OUT/plan.md,
# the text for reviewers. BASE is the same directory before the change: its plans are only compared,
# never stored. With PUBLISH=yes each plan of DIRECTORY is also stored under its digest, so that the
# plan that is approved by its id is the one that runs; OUT/plans.json has them for approve.sh.
#
# Exits with layoutctl's codes: 1 if a document is invalid, 5 if a catalog does not answer.
set -eu

layouts=$1
out=$2
base=${3:-}
mkdir -p "$out"

layoutctl validate "$layouts"
set -- -f "$layouts" -o markdown
[ "${PUBLISH:-no}" != yes ] || set -- "$@" --publish
if [ -n "$base" ]; then
  # Tables that the base cannot plan are listed in the file, and shown as unknown.
  if [ -d "$base" ]; then
    layoutctl plan -f "$base" -o json >"$out/base.json" || [ -s "$out/base.json" ]
  else
    echo '{"kind": "LayoutPlanList", "items": [], "errors": []}' >"$out/base.json"
  fi
  set -- "$@" --base "$out/base.json"
fi
layoutctl plan "$@" >"$out/plan.md"
# The plans that were published stand, so that these are the same ones.
[ "${PUBLISH:-no}" != yes ] || layoutctl plan -f "$layouts" -o json >"$out/plans.json"
