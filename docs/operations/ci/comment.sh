#!/bin/sh
# comment.sh FILE: put the text of FILE on a pull request, as the one comment that starts with the
# marker of `layoutctl plan -o markdown`. A later run replaces the comment of an earlier one.
#
# Needs curl and jq, and in the environment for GitHub: GITHUB_TOKEN (pull-requests: write),
# GITHUB_REPOSITORY (owner/name), PULL_REQUEST (its number); GITHUB_API_URL for your own server.
# For GitLab: GITLAB_TOKEN (scope api), and what its merge request pipelines set: CI_API_V4_URL,
# CI_PROJECT_ID, CI_MERGE_REQUEST_IID. COMMENT_USER is the name of the token's user: anybody may begin a
# comment with the marker, and only one of this user is replaced. Without it, any is.
set -eu

file=$1
marker='<!-- layoutctl:plan'

case $(head -c 19 "$file") in
"$marker"*) ;;
*) echo "comment.sh: $file does not begin with $marker" >&2; exit 1 ;;
esac

if [ -n "${GITLAB_TOKEN:-}" ]; then
  comments="$CI_API_V4_URL/projects/$CI_PROJECT_ID/merge_requests/$CI_MERGE_REQUEST_IID/notes"
  one=$comments update=PUT token="PRIVATE-TOKEN: $GITLAB_TOKEN"
else
  repository="${GITHUB_API_URL:-https://api.github.com}/repos/$GITHUB_REPOSITORY"
  comments="$repository/issues/$PULL_REQUEST/comments"
  one="$repository/issues/comments" update=PATCH token="Authorization: Bearer $GITHUB_TOKEN"
fi

# curl reads the token from standard input: every process on the machine can read arguments.
call() {
  method=$1 url=$2
  shift 2
  printf 'header = "%s"\n' "$token" |
    curl --config - --silent --show-error --fail --retry 3 --max-time 30 \
      --header 'Accept: application/json' --header 'Content-Type: application/json' \
      --request "$method" "$@" "$url"
}

body=$(mktemp)
trap 'rm -f "$body"' EXIT
jq --raw-input --slurp '{body: .}' "$file" >"$body"

page=1
while :; do
  answer=$(call GET "$comments?per_page=100&page=$page")
  found=$(printf %s "$answer" | jq --arg marker "$marker" --arg user "${COMMENT_USER:-}" \
    'map(select((.body // "" | startswith($marker)) and
      ($user == "" or (.user.login // .author.username) == $user))) | first | .id // empty')
  [ -z "$found" ] || break
  # A page may have fewer than 100 and not be the last: GitLab leaves out what the user may not see.
  [ "$(printf %s "$answer" | jq length)" -gt 0 ] || break
  page=$((page + 1))
done

if [ -n "$found" ]; then
  call "$update" "$one/$found" --data-binary "@$body" >/dev/null
  echo "comment $found updated"
else
  call POST "$comments" --data-binary "@$body" >/dev/null
  echo "comment created"
fi
