#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A PyTorch program of one's own, from `ppcli explain` to an exported program and a generated text. The program
# is tests/golden/pt2/text.pt2; own_model.py does the same with PyTorch.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

golden=$(cd "$(dirname "$0")/../golden/pt2" && pwd)
cd "$folder" || exit 1
cp "$golden/text.pt2" my.pt2
i=0
while [ $i -lt 100 ]; do
    echo 'to be or not to be'
    i=$((i + 1))
done >text.txt
# change NEW FROM TO: a program with another text in its model.json, of the same length
change() {
    python3 - "$@" <<'END'
import sys, zipfile
with zipfile.ZipFile("my.pt2") as old, zipfile.ZipFile(sys.argv[1], "w") as new:
    for entry in old.infolist():
        data = old.read(entry).replace(sys.argv[2].encode(), sys.argv[3].encode())
        new.writestr(zipfile.ZipInfo(entry.filename), data)
END
}

begin "explain counts the nodes of a program and lists its layers"
ok run explain my.pt2
out_has '23 nodes: 10 views, 13 computed by 12 ops: all fast' 'tokens: [batch] x 8 of int64, returns [batch] x 8 x 32' blocks.1
err_has 'ppcli init my.pt2'
ok run explain my.pt2 --set model.fuse=off
out_has general
fails 66 'absent.pt2' run explain absent.pt2
echo text >text.pt2
fails 65 'not a zip archive' run explain text.pt2

begin "explain lists each missing operator with its module, line and count, and fails"
change lost.pt2 ops.aten.layer_norm. ops.aten.layer_nurm.
fails 78 'lost.pt2: cannot be trained: 1 problem' run explain lost.pt2
out_has 'blocks.0.norm: aten.layer_nurm.default is none of the operators' '(2 times)' 'text.py:2' 'ppcli keys --operators'
config lost.ini data.dataset=synthetic-tokens model.from=lost.pt2
fails 78 'cannot be trained' run explain lost.ini
out_has 'layer_nurm'
fails 78 'blocks.0.norm: aten.layer_nurm.default is none of the operators' run train lost.ini
fails 78 'layer_nurm' run init lost.pt2

begin "keys --operators lists what a program may have"
ok run keys --operators
out_has scaled_dot_product_attention layer_norm conv2d arange
out_lacks conv3d cross_entropy
ok run keys --operators --json
out_has '"operator": "add.Tensor"'
fails 64 '--operators' run keys model --operators

begin "init writes a config that fits program and data"
ok run init my.pt2 text.txt -o my.ini
grep -q '^from = my.pt2' my.ini || complain "$(cat my.ini)"
grep -q '^train_file = text.txt' my.ini || complain "$(cat my.ini)"
ok run explain my.ini
out_has 'graph: torch 2.15.0' 'embed'
ok run init my.pt2 -o random.ini
grep -q '^dataset = synthetic-tokens' random.ini || complain "$(cat random.ini)"
fails 78 'forward() takes tokens' run init my.pt2 mnist-sample
fails 66 absent.txt run init my.pt2 absent.txt

begin "one digest for any number of stages and micro-batches"
for stages in 1 2 4; do
    ok run train my.ini --dir "run$stages" --stages $stages --microbatches $stages --max-steps 40 --set train.eval_interval=40 -q --set train.lr=0.01
    grep weights_sha256 "run$stages/summary.json" >>digests
done
same "$(sort -u digests | wc -l)" 1

begin "export gives the program back, with the weights; other formats are refused"
ok run export run4 out.pt2
same "$(wc -c <out.pt2)" "$(wc -c <my.pt2)"
if cmp -s out.pt2 my.pt2; then complain 'the weights are the old ones'; fi
ok run explain out.pt2
config out.ini data.dataset=text data.train_file=text.txt model.from=out.pt2 train.batch_size=32
ok run train out.ini --dir again --max-steps 1 --lr 1e-20 --set train.eval_interval=1 -q
tail -n 1 run4/metrics.jsonl >a
grep '^test loss' "$folder/out" >last
ok run eval run4
same "$(grep -o '^test loss *[0-9.]*' "$folder/out")" "$(grep -o '^test loss *[0-9.]*' last)"
fails 78 'out.pt2 exists' run export run4 out.pt2
fails 78 '--format pt2' run export run4 elsewhere --format onnx
fails 78 '--format pt2' run export run4 elsewhere --format gguf
ok run export run4
[ -f run4/export-00000040.pt2 ] || complain "$(ls run4)"

begin "generate continues a text, unless a position sees what follows"
ok run generate run4 --prompt 'to be or' --tokens 20 --temperature 0 -q
out_has 'to be or'
change ahead.pt2 '"as_bool":true' '"as_bool":false'
sed 's/my.pt2/ahead.pt2/' my.ini >ahead.ini
ok run train ahead.ini --dir ahead --max-steps 2 --set train.eval_interval=2 -q
fails 78 'sees the tokens after it' run generate ahead --prompt 'to be'

finish
