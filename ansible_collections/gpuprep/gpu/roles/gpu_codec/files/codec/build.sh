#!/bin/bash
# Builds FFmpeg in the folder it is started in. Runs as an unprivileged user, as a systemd unit, so that it outlives the
# connection that started it. Sees no network, and can write to that folder alone (tasks/start.yml). What it needs lies
# in the folder above, which is root's:
#
#   flags components             what to build (sealing.py plan)
#   sources.sha256               sha256sum lines of the tarballs
#   ffmpeg.tar ffmpeg.tar.asc headers.tar release-key.asc
#
# Leaves: out/ (the build), log, stage (one line for people), total (files to compile), result ("ok" or what failed).
# Root reads these as what a stranger wrote: progress.sh, install.py.
set -euo pipefail
export LC_ALL=C
release_key=$1
root=$PWD
given=${root%/*}

exec >log 2>&1 </dev/null
current=start
ended() {
  local code=$?
  [ "$code" = 0 ] || [ -s "$root/result" ] || echo "$current ended with $code" >"$root/result"
}
trap ended EXIT

stage() {
  current=$1
  echo "$1" >"$root/stage.new"
  mv "$root/stage.new" "$root/stage"
  echo "== $1"
}
fail() {
  echo "$*"
  echo "$*" >"$root/result"
  exit 1
}

stage "verifying the sources"
rm -rf src headers nv out result total
cd "$given"
sha256sum --check --strict sources.sha256 || fail "a tarball changed on its way to the host: $(sha256sum ffmpeg.tar headers.tar | tr '\n' ' ')differs from $(tr '\n' ' ' <sources.sha256)"
# gpgv reads binary keyrings only: take the armour off.
sed -n '/^$/,/^=/p' release-key.asc | grep -v '^=' | base64 -d >"$root/release-key.gpg"
gpgv --keyring "$root/release-key.gpg" --status-fd 3 ffmpeg.tar.asc ffmpeg.tar 3>"$root/signature" ||
  fail "the signature of FFmpeg's tarball is not good: expected one by $release_key, got: $(grep -E 'BADSIG|ERRSIG|NO_PUBKEY|EXPSIG|NODATA' "$root/signature" | tr '\n' ' ')"
grep -q "^\[GNUPG:\] VALIDSIG $release_key " "$root/signature" ||
  fail "FFmpeg's tarball is signed by another key: expected $release_key, got: $(sed -n 's/^.*VALIDSIG \([0-9A-F]*\).*/\1/p' "$root/signature")"

stage "unpacking the sources"
cd "$root"
mkdir src headers
tar -xf "$given/ffmpeg.tar" -C src --strip-components=1
tar -xf "$given/headers.tar" -C headers --strip-components=1
make -C headers install PREFIX="$root/nv"

stage "configuring"
cd src
mapfile -t flags <"$given/flags"
PKG_CONFIG_PATH=$root/nv/lib/pkgconfig ./configure "${flags[@]}" 2>&1 | tee "$root/configure.log" ||
  fail "configure failed: $(tail -n 12 "$root/configure.log" | tr '\n' ' ')"
# configure only warns about names it does not know, and silently drops what lacks a dependency.
unknown=$(sed -n 's/.*Option \(.*\) did not match anything.*/\1/p' "$root/configure.log" | tr '\n' ' ')
[ -z "$unknown" ] || fail "this FFmpeg does not know: $unknown"
dropped=
while read -r component; do
  grep -qsx "#define CONFIG_${component} 1" config_components.h config.h || dropped="$dropped ${component,,}"
done <"$given/components"
[ -z "$dropped" ] || fail "configure left out, because something they need is missing:$dropped"

stage "counting the files to compile"
make -n | grep -cE '^printf "(CC|X86ASM|AS|NVCC|HOSTCC)\\t' >"$root/total" || true

stage "compiling"
make -j"$(nproc)" >"$root/make.log" 2>&1 || {
  make_error=$(grep -E 'error|Error' "$root/make.log" | head -n 5 | tr '\n' ' ')
  fail "make failed: ${make_error:-$(tail -n 5 "$root/make.log" | tr '\n' ' ')}"
}

stage "gathering what was built"
make install-progs DESTDIR="$root/staged"
cd "$root"
installed=$(sed -n 's/^--prefix=//p' "$given/flags")
mv "staged$installed" out
rm -rf staged
mkdir -p out/share/doc/ffmpeg
cp src/LICENSE.md src/COPYING.* out/share/doc/ffmpeg/

stage "built"
echo ok >result
