#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# inspect and verify: what they answer for good, damaged and foreign files.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

golden=$(dirname "$0")/../golden/checkpoint-v1
cp -r "$golden" "$folder/checkpoints"
chmod -R u+w "$folder/checkpoints"
step=$folder/checkpoints/step-00000007
part=stage-0001-of-0002.safetensors

# byte FILE OFFSET : change one byte of a file
byte() { printf 'Z' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
size_of() { wc -c <"$1" | tr -d ' '; }

begin "inspect answers first, in one line, then lists the tensors"
ok run inspect "$step"
same "$(head -n 1 "$folder/out")" "$step: step 7, epoch 1, 21 parameters, 3.3 kB in 2 files"
out_has 'seed         18446744073709551615'
out_has 'layers.3.weight              F32   [1,2]'
same "$(grep -c safetensors "$folder/out")" 16
cp "$folder/out" "$folder/shown"

begin "inspect takes a run folder, its checkpoints, a MANIFEST and a part"
for path in "$folder" "$folder/checkpoints" "$step/" "$step/MANIFEST"; do
    ok run inspect "$path"
    cmp -s "$folder/out" "$folder/shown" || complain "$last: not the same answer"
done
shows '12 parameters in 8 tensors, 1.2 kB, without the state of a run' run inspect "$step/$part"

begin "inspect --format json is JSON with every tensor"
ok run inspect "$step" --format json
python3 -c '
import json, sys
c = json.load(sys.stdin)
assert (c["kind"], c["step"], c["parameters"], c["values"]) == ("checkpoint", 7, 21, 42), c
assert c["seed"] == "18446744073709551615" and c["numbers"]["correct"] == 7, c
assert c["config"] == "[train]\nseed = 1\n", c
assert len(c["tensors"]) == 16 and c["tensors"][1]["shape"] == [1, 2], c' \
    <"$folder/out" 2>"$folder/err" || complain "$(cat "$folder/err")"
fails 64 "unknown format 'xml'" run inspect "$step" --format xml

begin "verify tells what is good"
shows "$step: good: step 7, 16 tensors, 3.3 kB" run verify "$step" "$step/$part"
out_has "$part: good: 8 tensors, 1.2 kB"
same "$(cat "$folder/err")" ''
ok run verify "$folder"
same "$(wc -l <"$folder/out" | tr -d ' ')" 1

begin "verify says that it looked at bytes, and with --values at values"
out_has '; bytes only: --values looks for NaN and infinity too'
shows 'good: step 7, 16 tensors, 3.3 kB; bytes and values: ' run verify --values "$step"
out_has ', all of them finite'
# a file as another program writes it: one tensor of three floats and one of bytes, NaN and infinity
odd_values() { # odd_values FILE BYTES: the second of the floats
    header='{"a.b":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},"c":{"dtype":"U8","shape":[4],"data_offsets":[12,16]}}'
    {
        printf '%b' "\\0$(printf %03o ${#header})"
        printf '\0\0\0\0\0\0\0'
        printf '%s' "$header"
        printf '%b' "\\0000\\0000\\0200?$2\\0000\\0000\\0200?\\0377\\0377\\0377\\0377"
    } >"$1"
}
odd_values "$folder/nan.safetensors" '\0000\0000\0300\0177'
odd_values "$folder/inf.safetensors" '\0000\0000\0200\0377'
odd_values "$folder/fine.safetensors" '\0000\0000\0200?'
for name in nan inf fine; do
    ok run verify "$folder/$name.safetensors"
done
fails 1 'nan.safetensors: tensor a.b [3]: value 1 is NaN, and 1 of 3 are not finite' \
    run verify --values "$folder/nan.safetensors" "$folder/fine.safetensors"
out_has 'fine.safetensors: good: 2 tensors'
fails 1 'tensor a.b [3]: value 1 is infinite, and 1 of 3 are not finite' run verify --values "$folder/inf.safetensors"

begin "the digests of MANIFEST are those of sha256sum"
if command -v sha256sum >/dev/null 2>&1; then
    (cd "$step" && sed -n 's/^file \([^ ]*\) [0-9]* \(.*\)/\2  \1/p' MANIFEST | sha256sum -c --quiet) ||
        complain 'sha256sum disagrees'
else
    skip 'no sha256sum here'
fi

begin "a damaged tensor is named, by checkpoint and by file, with exit code 1"
byte "$step/$part" $(($(size_of "$step/$part") - 1))
for path in "$step" "$step/$part" "$folder"; do
    fails 1 "$part: tensor optimizer.m.layers.3.bias is damaged" run verify "$path"
    same "$(cat "$folder/out")" ''
done
ok run inspect "$step"
cp "$golden/step-00000007/$part" "$step/$part"

begin "a damaged header, state, config and MANIFEST are named, with exit code 1"
for file in "$part" state.json config.ini MANIFEST; do
    byte "$step/$file" 10
    fails 1 "$step/$file: " run verify "$step"
    rm -f "$step/$file"
    fails 1 "$step/$file: is missing" run verify "$step"
    cp "$golden/step-00000007/$file" "$step/$file"
done
ok run verify "$step"

begin "of several paths every bad one is told, and damage decides the exit code"
cp -r "$step" "$folder/checkpoints/step-00000008"
byte "$folder/checkpoints/step-00000008/state.json" 5
fails 1 '' run verify "$folder/nothing" "$folder" "$folder/shown"
out_has "$step: good"
err_has 'nothing: No such file' 'step-00000008/state.json: damaged' 'shown: not a safetensors file'
same "$(grep -c '^ppcli: error: ' "$folder/err")" 3

begin "inspect of a run whose newest checkpoint is damaged says so and shows the one before"
ok run inspect "$folder"
err_has 'step-00000008 cannot be used'
out_has 'step 7, epoch 1'
rm -r "$folder/checkpoints/step-00000008"

begin "what is no checkpoint is 65, what is not there is 66"
fails 65 '' run verify "$folder/shown"
cp "$folder/shown" "$folder/named.safetensors"
fails 65 '' run verify "$folder/named.safetensors"
mkdir "$folder/empty"
for command in verify inspect; do
    fails 66 '' run $command "$folder/nothing"
done
fails 66 'no checkpoint in' run inspect "$folder/empty"
fails 65 '' run inspect "$folder/shown"
fails 65 '' run inspect /dev/zero

# st FILE NAME=TYPE[SHAPE]...: a file of such tensors, whose bytes are 7; names as JSON has them
cat >"$folder/st.py" <<'PY'
import json, math, struct, sys
bits = {'F4': 4, 'F6_E2M3': 6, 'I8': 8, 'F8_E4M3': 8, 'BOOL': 8, 'I16': 16, 'U16': 16, 'BF16': 16,
        'U32': 32, 'F32': 32, 'C64': 64, 'U64': 64, 'I64': 64}
head, at = {}, 0
for word in sys.argv[2:]:
    name, _, form = word.rpartition('=')
    kind, shape = form.split('[')
    shape = json.loads('[' + shape)
    n = math.prod(shape) * bits[kind] // 8
    head[json.loads('"' + name + '"')] = {'dtype': kind, 'shape': shape, 'data_offsets': [at, at + n], 'by': ['x', {}]}
    at += n
text = json.dumps(head).encode()
open(sys.argv[1], 'wb').write(struct.pack('<Q', len(text)) + text + b'\7' * at)
PY
other=$folder/other.safetensors
st() { python3 "$folder/st.py" "$@" || complain "no file written"; }

begin "inspect shows types, names and shapes that ppcli cannot train with, and says so"
st "$other" 'a=I8[2,2]' 'b/c d=C64[1]' '=F8_E4M3[0]' '\u00e9\u001b[2J=U64[]' 'n=BF16[1,1,1,1,1,1,1,1,2]' 'k=I64[]' 'q=F4[2,3]'
shows '7 tensors' run inspect "$other"
for row in '""  *F8_E4M3  *\[0\]  *0  ' 'a  *I8  *\[2,2\]  *4  ' '"b/c d"  *C64  *\[1\]  *8  ' 'é?\[2J  *U64  *\[\]  *8  ' \
    'n  *BF16  *\[1,1,1,1,1,1,1,1,2\]  *4  ' 'q  *F4  *\[2,3\]  *3  '; do
    grep -q "^$row" "$folder/out" || complain "no row $row"
done
out_has 'cannot train with or evaluate 5 of the tensors (F8_E4M3 I8 C64 F4 U64): it reads F32, F16, BF16 and F64'
ok run inspect "$other" --format json
python3 - "$folder/out" <<'PY' || complain 'other JSON than expected'
import json, sys
tensors = {t['name']: t for t in json.load(open(sys.argv[1]))['tensors']}
assert tensors['b/c d'] == {'name': 'b/c d', 'dtype': 'C64', 'shape': [1], 'bytes': 8, 'file': 'other.safetensors', 'readable': False}
assert tensors['\u00e9\x1b[2J']['shape'] == [] and tensors['n']['readable'] and tensors['k']['readable']
PY
shows '2, all of them finite; not looked at: values of 2 tensors of types that ppcli does not read' \
    run verify "$other" --values

begin "a parameter of such a type is refused by those that need it"
st "$other" layers.0.weight='F8_E4M3[512,784]' layers.0.bias='F32[512]'
fails 65 'other.safetensors: tensor layers.0.weight is of type F8_E4M3, expected floats' \
    run eval mnist-sample.ini --checkpoint "$other"

begin "without a path both say what they want"
for command in verify inspect; do
    fails 64 'safetensors file' run $command
done

finish
