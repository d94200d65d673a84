#!/bin/sh
# Checks on this computer: are the files those that were built, is the driver new enough, does the GPU encode?
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
ffmpeg=$here/bin/ffmpeg
minimum=@MINIMUM_DRIVER@
failed=0
say() { # outcome, what, what to do
  if [ "$1" = 0 ]; then echo "PASS  $2"; else echo "FAIL  $2"; echo "      $3"; failed=1; fi
}

# The encoder's own words, or else the end.
why() {
  echo "$1" | grep -E -m 2 'nvenc|[Cc][Uu][Dd][Aa]|driver' | grep . || echo "$1" | tail -n 2
}

sums=$(sed -n 's,^  "\([^"]*\)": "\([0-9a-f]\{64\}\)".*,\2  \1,p' "$here/manifest.json" | grep -v '\.tar$')
(cd "$here" && echo "$sums" | sha256sum --check --quiet --strict) >/dev/null 2>&1
say $? "all files are those that were built" "Unpack the archive again."

driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
oldest=$(printf '%s\n%s\n' "$minimum" "$driver" | sort -V | head -n 1)
[ -n "$driver" ] && [ "$oldest" = "$minimum" ]
say $? "driver ${driver:-none}, $minimum or newer is needed" "Install a newer driver."

"$ffmpeg" -hide_banner -encoders 2>/dev/null | grep -q h264_nvenc
say $? "FFmpeg has the NVENC encoders" "This is not the FFmpeg of this archive, or it does not run here."

clip=$(mktemp --suffix=.mp4) || exit 1
trap 'rm -f "$clip"' EXIT
said=$("$ffmpeg" -hide_banner -y -f lavfi -i testsrc2=size=1280x720:rate=30 -frames:v 90 -c:v h264_nvenc "$clip" 2>&1)
code=$?
say $code "the GPU encodes H.264" "$(why "$said")"
if [ $code = 0 ]; then
  said=$("$ffmpeg" -hide_banner -hwaccel cuda -hwaccel_output_format cuda -i "$clip" -vf scale_cuda=640:360 -c:v h264_nvenc \
    -f null - 2>&1) && echo "$said" | grep -q 'frame= *90'
  say $? "the GPU transcodes it: decodes, scales, encodes 90 frames" "$(why "$said")"
fi
exit $failed
