#!/bin/sh
# approve.sh LAYOUTS OUT github|gitlab USER: record what people approved on a pull request by a review
# or a comment. OUT/plans.json has the plans of its head, by plan.sh; USER is who comments them.
#
# Needs in the environment what comment.sh needs, and HEAD_COMMIT, the commit that was planned.
# Exits with 3 while a plan is not approved.
set -eu

if [ "$3" = gitlab ]; then
  repository=$CI_PROJECT_ID pull=$CI_MERGE_REQUEST_IID
else
  repository=$GITHUB_REPOSITORY pull=$PULL_REQUEST
fi
exec layoutctl review "$3" -f "$1" --plans "$2/plans.json" --shown-by "$4" \
  --repository "$repository" --pull "$pull" --head "$HEAD_COMMIT"
