#!/bin/sh
# The program of an image: a tape that says back all it has heard. "stop" ends it.
set -eu
read -r asked || true
case "$1" in
reset)
  printf 'start' >words
  printf '{"messages": [{"role": "user", "content": "Talk."}]}'
  ;;
step)
  word=$(printf '%s' "$asked" | sed 's/.*"\(plain\|text\)":"\([^"]*\)".*/\2/')
  printf ' %s' "$word" >>words
  case "$word" in
  break) echo "the episode broke" >&2; exit 3 ;;
  *stop) printf '{"done": true, "reward": 1.0}' ;;
  *) printf '{"messages": [{"role": "user", "content": "%s"}]}' "$(cat words)" ;;
  esac
  ;;
finish) printf '{"outcome": 0.%s}' "$(tr -cd + <words | wc -c)" ;;
esac
