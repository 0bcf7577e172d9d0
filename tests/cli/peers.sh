#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/peers without its peers: each script says what is missing and ends with 77, and the
# comparison still measures ppcli.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
unset PEERS_PYTHON SHALLOWSPEED_DIR PYTHONPATH

peers=$(CDPATH='' cd -- "$(dirname -- "$0")/../../scripts/peers" && pwd)
# -S leaves out every installed package, so torch, numpy and mpi4py are not there.
cat >"$folder/python" <<'EOT'
#!/bin/sh
exec python3 -S "$@"
EOT
chmod +x "$folder/python"
export PYTHONDONTWRITEBYTECODE=1

script() {
    last=$*
    name_of_script=$1
    shift
    code=0
    "$folder/python" "$peers/$name_of_script" "$@" >"$folder/out" 2>"$folder/err" </dev/null || code=$?
}

skips_with() {
    code_is 77
    same "$(wc -c <"$folder/out" | tr -d ' ')" 0
    same "$(wc -l <"$folder/err" | tr -d ' ')" 1
    err_has "skipped: $1"
}

begin "the PyTorch peers say that torch is missing"
script torch_accumulate.py
skips_with 'no Python module torch in '
script torch_pipelining.py --schedule zb-v
skips_with 'no Python module torch in '
script torch_conv.py --model type=resnet --model depth=18
skips_with 'no Python module torch in '

script torch_text.py --model type=gpt
skips_with 'no Python module torch in '

begin "shallowspeed says what is missing: checkout first, packages then"
script shallowspeed.py
skips_with 'no checkout of shallowspeed'
script shallowspeed.py --repo "$folder/nothing here"
skips_with 'no shallowspeed/pipe.py in '
mkdir -p "$folder/repo/shallowspeed"
: >"$folder/repo/shallowspeed/pipe.py"
script shallowspeed.py --repo "$folder/repo"
skips_with 'no Python module numpy in '

begin "a size, a batch or a cut that cannot be is refused"
fails 2 'each at least 1' script torch_accumulate.py --sizes 784-0x3-10
fails 2 "'12y3'" script torch_accumulate.py --sizes 784-12y3-10
fails 2 'must divide' script torch_accumulate.py --batch 100 --microbatches 3
fails 2 '4 parts of 3 layers' script torch_pipelining.py --sizes 8-8-8-4 --stages 2 --schedule zb-v

fails 2 "'resnet'" script torch_conv.py --model resnet

begin "the comparison measures ppcli and names each missing peer once"
code=0
PEERS_PYTHON="$folder/python" "$peers/compare.sh" --build "$(dirname "$PPCLI")" --case c1 \
    --only 1f1b --only PyTorch --steps 2 --blocks 2 --out "$folder/peers" \
    >"$folder/out" 2>"$folder/err" || code=$?
last='compare.sh --case c1'
code_is 0
out_has '| c1 | ppcli, 2 stages, 1f1b | ' '| c1 | PyTorch: skipped: no Python module torch in '
out_has '| c1 | torch.distributed.pipelining: skipped: '
same "$(grep -c 'skipped' "$folder/out")" 2
python3 - "$folder/peers/compare.json" >"$folder/out" 2>&1 <<'EOT' || complain "$(cat "$folder/out")"
import json, sys
rows = {r["key"]: r for r in json.load(open(sys.argv[1]))["rows"]}
ours = rows["ppcli-2-1f1b"]
assert len(ours["blocks"]) == 2 and min(ours["blocks"]) > 0, ours
assert "--max-steps" in ours["command"], ours
assert rows["torch-m4-2"]["skipped"], rows
EOT

begin "without a GPU the rows of the GPU cases say so, ppcli's too"
code=0
CUDA_VISIBLE_DEVICES='' PEERS_PYTHON="$folder/python" "$peers/compare.sh" \
    --build "$(dirname "$PPCLI")" --case g1 --steps 2 --blocks 1 --out "$folder/peers" \
    >"$folder/out" 2>"$folder/err" || code=$?
last='compare.sh --case g1'
code_is 0
out_has '| g1 | ppcli: skipped: backend cuda cannot run here: '
out_has '| g1 | PyTorch: skipped: no Python module torch in '
same "$(grep -c 'skipped' "$folder/out")" 2

begin "a build folder without ppcli is refused"
code=0
"$peers/compare.sh" --build "$folder" >"$folder/out" 2>"$folder/err" || code=$?
last='compare.sh --build'
code_is 2
err_has "no ppcli in $folder"

finish
