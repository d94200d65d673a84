#!/bin/bash
# On a machine with the measured GPU: fresh random shapes that no tree knows, measured and laid beside what explain expects.
#
#     tests/support/holdout.sh SEED FOLDER [SECONDS]      a seed that was not used before; 150 seconds are enough for 200 shapes a type
#
# FOLDER gets shapes.csv and found.csv. Needs what measureshapes.py needs; it changes no setting of the GPU.
set -euo pipefail
tests=$(cd "$(dirname "$0")" && pwd)
seed=$1 folder=$2 seconds=${3:-150}
export PYTHONPATH="$tests/..${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$folder"
python3 "$tests/support/drawshapes.py" "$seed" 200 > "$folder/shapes.csv"
python3 "$tests/support/measureshapes.py" "$folder/shapes.csv" "$seconds" "$folder/found.csv"
python3 "$tests/support/fitshapes.py" --check "$folder/found.csv"
