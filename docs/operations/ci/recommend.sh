#!/bin/sh
# recommend.sh DIRECTORY TABLE...: open a pull request for each table (catalog.namespace.table) for
# which the operator knows a better layout. The layout is written into the policy below DIRECTORY that
# lists the table by name, a new one if none does. One pull request per recommendation: one that was
# merged or closed is not opened again.
#
# Needs git, curl, jq and layoutctl with a kubeconfig that may read TableLayouts, in a checkout whose
# remote `origin` may be pushed to; and in the environment GITHUB_TOKEN (pull-requests: write),
# GITHUB_REPOSITORY (owner/name), BASE (the branch to change; main), GITHUB_API_URL for your own server.
set -eu

layouts=$1
shift
base=${BASE:-main}
api=${GITHUB_API_URL:-https://api.github.com}/repos/$GITHUB_REPOSITORY/pulls
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# curl reads the token from standard input: every process on the machine can read arguments.
call() {
  printf 'header = "Authorization: Bearer %s"\n' "$GITHUB_TOKEN" |
    curl --config - --silent --show-error --fail --retry 3 --max-time 30 \
      --header 'Accept: application/vnd.github+json' "$@"
}

for table in "$@"; do
  # It exits with 1 where no recommendation was made, and prints the reason.
  found=$(layoutctl recommend "$table" --from-cluster -o name) || continue
  branch="layout/${found% *}"
  if [ "${found#* }" != LayoutRecommended ]; then
    echo "$table: ${found#* }"
    continue
  fi
  call "$api?state=all&head=${GITHUB_REPOSITORY%%/*}:$branch" >"$work/known"
  if [ "$(jq length "$work/known")" -gt 0 ]; then
    echo "$table: there is a pull request of $branch"
    continue
  fi
  git checkout --quiet -B "$branch" "origin/$base"
  bare=${table#*.}
  file=$(grep -rlF --include='*.yaml' -- "$bare" "$layouts" | sort | head -n 1)
  file=${file:-$layouts/$bare.yaml}
  layoutctl recommend "$table" --from-cluster --out "$file" >"$work/body"
  layoutctl validate "$layouts"
  git add -- "$file"
  if git diff --cached --quiet; then
    echo "$table: $file declares it already"
    continue
  fi
  git commit --quiet -m "Layout of $table, as recommended"
  git push --quiet --force origin "$branch"
  jq --null-input --arg title "Layout of $table" --arg head "$branch" --arg base "$base" \
    --rawfile text "$work/body" \
    '{title: $title, head: $head, base: $base, body: ("```\n" + $text + "```\n")}' >"$work/pull"
  call --request POST "$api" --data-binary "@$work/pull" | jq --raw-output '.html_url'
done
