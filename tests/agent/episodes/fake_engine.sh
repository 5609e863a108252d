#!/bin/sh
# Speaks the command line of a container engine; a container is a folder below $FAKE_ENGINE.
# An image is a folder that the container begins with; its programs run inside the container.
set -eu
cd "$FAKE_ENGINE"

refuse() {
  echo "Error: $1" >&2
  exit 125
}

case "$1" in
run) # run --detach --name NAME IMAGE
  [ ! -e "containers/$4" ] || refuse "the container name $4 is already in use"
  [ -d "images/$5" ] || refuse "$5: image not known"
  cp -a "images/$5" "containers/$4"
  ;;
exec) # exec --interactive NAME PROGRAM WORDS
  cd "containers/$3" 2>/dev/null || refuse "no container with name $3"
  shift 3
  exec "./$@"
  ;;
container)
  if [ "$2" = checkpoint ]; then # container checkpoint --leave-running --export FILE NAME
    [ -d "containers/$6" ] || refuse "no container with name $6"
    tar -cf "$5" -C "containers/$6" .
  else # container restore --import FILE --name NAME
    [ -f "$4" ] || refuse "$4: no such archive"
    [ ! -e "containers/$6" ] || refuse "the container name $6 is already in use"
    mkdir "containers/$6"
    tar -xf "$4" -C "containers/$6"
  fi
  ;;
commit) # commit NAME MARK
  cp -a "containers/$2" "images/$3"
  ;;
image) # image rm --force MARK
  rm -rf "images/$4"
  ;;
rm) # rm --force [--time 0] NAME
  for name in "$@"; do :; done
  [ -d "containers/$name" ] || refuse "no container with name $name"
  rm -rf "containers/$name"
  ;;
*) refuse "unknown command $1" ;;
esac
