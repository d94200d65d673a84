#!/bin/sh
# Provisions the builder of an image from this computer: gpuprep.pkr.hcl calls it. It can also be called by hand:
#
#   BUILD_HOST=198.51.100.7 BUILD_USER=admin BUILD_KEY=./build_key PROFILE=t4 sh provision.sh
#
# BUILD_PORT is 22 unless set. RECORD names a file for gpuprep's record of the builder; without it none is kept.
set -eu
: "${BUILD_HOST:?the address of the builder}" "${BUILD_USER:?who logs in there}" "${PROFILE:?a profile of gpuprep}"
: "${BUILD_KEY:?the file of the private key}"
key=$(realpath -e -- "$BUILD_KEY")
case $PROFILE in */*) PROFILE=$(realpath -e -- "$PROFILE") ;; esac
case $BUILD_HOST in *:*) BUILD_HOST="[$BUILD_HOST]" ;; esac # IPv6

# A home for this build alone. The builder is gone in an hour: its host key does not belong among your known hosts, where
# the next machine with this address would be refused, and its records do not belong into the history of your hosts.
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
trap 'exit 130' INT TERM
XDG_CONFIG_HOME=${XDG_CONFIG_HOME:-$HOME/.config} XDG_CACHE_HOME=${XDG_CACHE_HOME:-$HOME/.cache}
export XDG_CONFIG_HOME XDG_CACHE_HOME XDG_STATE_HOME="$scratch/state" HOME="$scratch"
unset GPUPREP_STORE

# Packer does not say which host key it has seen, so the first one is taken. A machine in between could so take the
# builder's place: build in a network that you trust.
code=0
gpuprep provision "$BUILD_USER@$BUILD_HOST:${BUILD_PORT:-22}" --profile "$PROFILE" \
  --ssh-key "$key" --accept-new-host-key --json --output "$scratch/record.json" || code=$?
if [ -n "${RECORD:-}" ] && [ -f "$scratch/record.json" ]; then cp -- "$scratch/record.json" "$RECORD"; fi
exit "$code"
