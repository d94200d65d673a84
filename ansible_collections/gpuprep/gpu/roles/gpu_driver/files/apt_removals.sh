#!/bin/sh
# What would apt remove to install these packages? Changes nothing. Arguments: the pin that will be in force ("" for none),
# then NAME=VERSION to install and NAME- to remove... Prints apt's own simulation.
pin=$(mktemp) || exit 1
trap 'rm -f "$pin"' EXIT
printf '%s\n' "$1" >"$pin"
shift
LC_ALL=C apt-get --simulate --no-install-recommends --allow-downgrades --ignore-hold \
  -o "Dir::Etc::preferences=$pin" -o Dir::Etc::preferencesparts=/nonexistent install "$@"
