#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/gpu-check.sh where there is no device: every part says so, in the table and in JSON.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
check=$(CDPATH='' cd -- "$(dirname -- "$0")/../../scripts" && pwd)/gpu-check.sh
CUDA_VISIBLE_DEVICES=''
export CUDA_VISIBLE_DEVICES

gpu_check() {
    last="gpu-check.sh $*"
    code=0
    sh "$check" "$@" >"$folder/out" 2>"$folder/err" </dev/null || code=$?
    files=$(find "${1:-$folder}" -type f 2>/dev/null | wc -l)
    [ ! -f "${1:-}/results.tar" ] || tar -xf "$1/results.tar" -C "$1"
}

begin "a dry run prints the parts of three calls, each of at most ten minutes"
gpu_check "$folder/plan" --dry-run
code_is 0
awk '{ s[$2] += $6; n++ } END { exit !(n == 17 && s[1] <= 570 && s[2] <= 570 && s[3] <= 570 && s[3] > 0) }' "$folder/out" ||
    complain "$(cat "$folder/out")"
[ ! -e "$folder/plan" ] || complain 'a dry run made a folder'
parts=$(awk '{ print $3 }' "$folder/out" | paste -sd ' ' -)
gpu_check "$folder/plan" --dry-run --call 2
same "$(awk '{ print $3 }' "$folder/out" | paste -sd ' ' -)" 'kernels gpt2 g4 g3 conv'

begin "without a device every part is skipped with the reason, and the exit code is 77"
fails 77 '' gpu_check "$folder/a" --program "$PPCLI"
same "$(cat "$folder/err")" ''
same "$files" 2
for part in $parts; do
    grep -q "^$part  *skipped  *[0-9][0-9]*  no device: ." "$folder/out" || complain "no line of $part: $(cat "$folder/out")"
    grep -q '^no device: .' "$folder/a/$part.log" || complain "no log of $part"
done

begin "check.json says the same"
if command -v python3 >/dev/null 2>&1; then
    python3 - "$folder/a/check.json" "$parts" >"$folder/out" 2>&1 <<'EOT' || complain "$(cat "$folder/out")"
import json, sys
check = json.load(open(sys.argv[1]))
assert check["schema"] == 1 and check["exit_code"] == 77, check
assert check["program"].startswith("ppcli "), check
assert [p["part"] for p in check["parts"]] == sys.argv[2].split(), check
assert all(p["result"] == "skipped" and p["said"].startswith("no device: ") for p in check["parts"]), check
EOT
else
    skip 'no python3 here'
fi

# The processor in the part of a GPU: what the script does with results is the same.
# (gpu-check.sh has a PPCLI of its own, which is this one.)
REAL_PPCLI=$PPCLI
export REAL_PPCLI
cat >"$folder/made-up" <<'EOT'
#!/bin/sh
if [ "$1" = env ]; then
    "$REAL_PPCLI" "$@" | grep -v '^  cuda'
    echo '  device 0       Made-up GPU, 132 multiprocessors, 1 GiB'
    exit 0
fi
for word; do
    shift
    [ "$word" = run.backend=cuda ] && word=run.backend=cpu
    set -- "$@" "$word"
    [ -n "${BREAK:-}" ] && [ "$word" = "$BREAK" ] && set -- "$@" --seed 2
done
exec "$REAL_PPCLI" "$@"
EOT
chmod +x "$folder/made-up"
for config in small wide pipeline; do
    mkdir -p "$folder/configs"
    printf '[model]\nsizes = 20 16*7 5\n[train]\nbatch_size = 32\noptimizer = sgd\n[data]\ntrain_samples = 256\n' \
        >"$folder/configs/gpu-$config.ini"
done

# zb-exact-v proves no step of this size: it is the one that is refused.
begin "parts that pass are told with their figures"
GPU_CHECK_CONFIGS=$folder/configs GPU_CHECK_CEILINGS=--no-ceilings gpu_check "$folder/m" --program "$folder/made-up" \
    --only env --only equality --only g1
code_is 0
grep -q '^env  *passed .* 0: Made-up GPU$' "$folder/out" || complain "env: $(cat "$folder/out")"
grep -q '^equality  *passed .* [0-9][0-9] runs, 1 refused$' "$folder/out" || complain "equality: $(cat "$folder/out")"
grep -q '^g1  *passed .*f32 [1-9][0-9]*/s' "$folder/out" || complain "g1: $(cat "$folder/out")"
[ -s "$folder/m/g1.json" ] || complain 'no g1.json'

begin "a later call continues: what has passed is not run again, and keeps its results"
GPU_CHECK_CONFIGS=$folder/configs GPU_CHECK_CEILINGS=--no-ceilings BREAK=gpipe gpu_check "$folder/m" \
    --program "$folder/made-up" --call 1 --seconds 0
code_is 0
grep -q '^equality  *passed  *in a call before$' "$folder/out" || complain "$(cat "$folder/out")"
grep -q '^nets  *skipped .* no time left' "$folder/out" || complain "$(cat "$folder/out")"
grep -q '"part": "g1", "result": "passed"' "$folder/m/check.json" || complain "$(cat "$folder/m/check.json")"

begin "a net's part tells what its ops reach, and its speed where there is no PyTorch"
printf '[model]\ntype = gpt\nn_layer = 2\nn_head = 2\nn_embd = 16\nblock_size = 8\n[train]\nbatch_size = 4\n' \
    >"$folder/configs/gpt-char-large.ini"
printf '#!/bin/sh\nexec python3 -S "$@"\n' >"$folder/python"
chmod +x "$folder/python"
if command -v python3 >/dev/null 2>&1; then
    export PEERS_PYTHON="$folder/python" PYTHONDONTWRITEBYTECODE=1
    GPU_CHECK_PEERS=--rehearsal GPU_CHECK_CONFIGS=$folder/configs GPU_CHECK_CEILINGS='--no-ceilings --time 0.01' \
        gpu_check "$folder/p" --program "$folder/made-up" --only g4
    code_is 0
    grep -q '^g4  *passed .* ppcli, f32, 1 micro-batch [1-9][0-9]*/s' "$folder/out" ||
        complain "g4: $(cat "$folder/out" "$folder/p/g4.log")"
    grep -q '"attention"' "$folder/p/g4-ops.json" || complain 'no attention in g4-ops.json'
    grep -q 'skipped: no Python module torch' "$folder/p/g4.log" || complain "$(cat "$folder/p/g4.log")"
    [ -s "$folder/p/peers/g4/compare.json" ] || complain 'no compare.json'
    [ ! -e "$folder/p/peers/g4/g4.safetensors" ] || complain 'weights are left behind'
else
    skip 'no python3 here'
fi

begin "other bits of one schedule fail, and are named"
BREAK=gpipe gpu_check "$folder/n" --program "$folder/made-up" --only equality
code_is 1
grep -q '^equality  *failed .* other bits: gpipe/4$' "$folder/out" || complain "$(cat "$folder/out")"

begin "cuBLASLt is found beside PyTorch, and a sanitizer that knows no such device is left out"
mkdir -p "$folder/site/nvidia/cu13/lib" "$folder/tools"
cat >"$folder/without" <<'EOT'
#!/bin/sh
case ${LD_LIBRARY_PATH:-} in
*::*) exit 1 ;; # an empty word is the folder that one is in
*/site/nvidia/cu13/lib*) exec "${0%/*}/made-up" "$@" ;;
esac
[ "$1" = env ] && echo '  cuda           no: libcublasLt.so.13 cannot be loaded; install cuBLAS'
exit 0
EOT
cat >"$folder/tools/compute-sanitizer" <<'EOT'
#!/bin/sh
case $* in *' --report-api-errors no '*) ;; *) exit 9 ;; esac # or each look at an event is a finding
echo '========= Error: Device not supported.'
exit 1
EOT
chmod +x "$folder/without" "$folder/tools/compute-sanitizer"
if command -v python3 >/dev/null 2>&1; then
    PATH=$folder/tools:$PATH PYTHONPATH=$folder/site PEERS_PYTHON=python3 \
        gpu_check "$folder/w" --program "$folder/without" --only env --only sanitizer
    code_is 0
    grep -q '^env  *passed .* 0: Made-up GPU$' "$folder/out" || complain "$(cat "$folder/out")"
    grep -q '^sanitizer  *skipped .* does not support the device' "$folder/out" || complain "$(cat "$folder/out")"
else
    skip 'no python3 here'
fi

begin "what takes too long is ended and told"
fails 1 '' gpu_check "$folder/o" --program "$folder/made-up" --only equality --only g1 --seconds 1
grep -q '^equality  *late .* more than 1 s' "$folder/out" || complain "$(cat "$folder/out")"
grep -q '^g1  *skipped .* no time left of 1 s' "$folder/out" || complain "$(cat "$folder/out")"

begin "chosen parts only"
fails 77 '' gpu_check "$folder/b" --program "$PPCLI" --only g1 --only ops
same "$(grep -c skipped "$folder/out")" 2

begin "a bundle is unpacked and its program used"
mkdir -p "$folder/ppcli-gpu/bin"
cp "$PPCLI" "$folder/ppcli-gpu/bin/ppcli"
tar -C "$folder" -czf "$folder/bundle.tar.gz" ppcli-gpu
fails 77 '' gpu_check "$folder/c" --bundle "$folder/bundle.tar.gz" --only ops
out_has 'no device: '
: >"$folder/bundle.tar.gz"
fails 65 '' gpu_check "$folder/c" --bundle "$folder/bundle.tar.gz"

begin "what cannot be is refused"
fails 64 '' gpu_check
fails 64 'exclude each other' gpu_check "$folder/d" --build "$folder" --bundle "$folder/x"
fails 64 "'g7'" gpu_check "$folder/d" --only g7
fails 64 '' gpu_check "$folder/d" --faster
fails 64 '1, 2 or 3' gpu_check "$folder/d" --call 4
fails 66 "no $folder/nowhere/ppcli" gpu_check "$folder/d" --build "$folder/nowhere"
fails 66 '' gpu_check "$folder/d" --bundle "$folder/nothing.tar.gz"

finish
