#!/bin/sh
# comment.sh FILE: put the text of FILE on a pull request, as the one comment that starts with the
# marker of `layoutctl plan -o markdown`. A later run replaces the comment of an earlier one.
#
# Needs curl and jq, and in the environment: GITHUB_TOKEN (pull-requests: write), GITHUB_REPOSITORY
# (owner/name), PULL_REQUEST (its number); GITHUB_API_URL for your own server.
set -eu

file=$1
marker='<!-- layoutctl:plan'
api=${GITHUB_API_URL:-https://api.github.com}
comments="$api/repos/$GITHUB_REPOSITORY/issues/$PULL_REQUEST/comments"

case $(head -c 19 "$file") in
"$marker"*) ;;
*) echo "comment.sh: $file does not begin with $marker" >&2; exit 1 ;;
esac

# curl reads the token from standard input: every process on the machine can read arguments.
call() {
  method=$1 url=$2
  shift 2
  printf 'header = "Authorization: Bearer %s"\n' "$GITHUB_TOKEN" |
    curl --config - --silent --show-error --fail --retry 3 --max-time 30 \
      --header 'Accept: application/vnd.github+json' --request "$method" "$@" "$url"
}

body=$(mktemp)
trap 'rm -f "$body"' EXIT
jq --raw-input --slurp '{body: .}' "$file" >"$body"

page=1
while :; do
  answer=$(call GET "$comments?per_page=100&page=$page")
  found=$(printf %s "$answer" | jq --arg marker "$marker" \
    'map(select(.body | startswith($marker))) | first | .id // empty')
  [ -z "$found" ] || break
  [ "$(printf %s "$answer" | jq length)" -eq 100 ] || break
  page=$((page + 1))
done

if [ -n "$found" ]; then
  call PATCH "$api/repos/$GITHUB_REPOSITORY/issues/comments/$found" --data-binary "@$body" >/dev/null
  echo "comment $found updated"
else
  call POST "$comments" --data-binary "@$body" >/dev/null
  echo "comment created"
fi
