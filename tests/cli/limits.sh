#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What happens at the limits of a machine: no memory, no disk, no permission, nobody reading.
# shellcheck disable=SC3045 # ulimit -v: dash, bash and busybox have it
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

root=$(CDPATH='' cd -- "$(dirname "$0")/../.." && pwd)
checkpoint=$root/tests/golden/checkpoint-v1/step-00000007
chmod 755 "$folder"
net=$folder/net.ini
config "$net" data.dataset=synthetic data.train_samples=64 data.test_samples=16 \
    'model.sizes=12 8*3 5' pipeline.stages=2 pipeline.microbatches=2 train.epochs=1 \
    train.batch_size=32
run train "$net" -q --dir "$folder/run"

# one_line CODE TEXT: refused like this, in one line, before any training
one_line() {
    code_is "$1"
    err_has "$2"
    same "$(grep -c '^ppcli: error: ' "$folder/err")" 1
    out_lacks 'epoch='
}

begin "a run that cannot fit is refused at once, with both numbers and what would help"
run train "$net" --set 'model.sizes=12 1048576*60 5' --dir ''
one_line 69 'this run needs '
err_has 'GiB are left of ' 'run.force_memory'
same "$(wc -l <"$folder/err" | tr -d ' ')" 1
ok run explain "$net" --set 'model.sizes=12 1048576*60 5'

begin "layers too large to be measured are refused before they are, with what needs no measurement"
run tune "$net" --set 'model.sizes=12 1048576*3 5'
one_line 69 'to measure the layers takes '
err_has 'ppcli estimate CONFIG --machine FILE'

begin "recompute = auto leaves room for the data"
config "$folder/wide.ini" data.dataset=synthetic data.train_samples=6000000 data.test_samples=16 \
    'model.sizes=64 512*12 10' pipeline.stages=1 pipeline.microbatches=8 pipeline.schedule=gpipe \
    pipeline.recompute=auto train.batch_size=4096 train.max_steps=1 run.dir=
if (ulimit -v 640000 && exec "$PPCLI" version) >/dev/null 2>&1; then
    code=0
    (ulimit -v 640000 && exec "$PPCLI" train "$folder/wide.ini") >"$folder/out" 2>"$folder/err" || code=$?
    code_is 0
    err_has 'recompute auto: all'
else
    skip 'a sanitizer needs more address space'
fi

begin "a small limit of stacks is not that of the ranks; one that is too small is raised, or named"
(ulimit -s 128 && exec "$PPCLI" version) >/dev/null 2>&1 || skip "ppcli does not start with it (a sanitizer)"
for command in 'train' 'bench --repeat 1 --warmup 1 --time 0.01 --no-ceilings'; do
    for limit in '-s 128' '-Ss 64'; do
        [ -z "$skipped" ] || break
        code=0
        last="ulimit $limit; ppcli $command"
        # shellcheck disable=SC2086 # words
        (ulimit $limit && exec "$PPCLI" ${command%% *} "$net" ${command#"${command%% *}"}) \
            >"$folder/out" 2>"$folder/err" </dev/null || code=$?
        code_is 0
    done
done
if [ -z "$skipped" ]; then
    code=0
    last='ulimit -s 64; ppcli train'
    lesser=
    [ "$(id -u)" -ne 0 ] || lesser='setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource'
    # shellcheck disable=SC2086 # words
    (ulimit -s 64 && exec $lesser "$PPCLI" train "$net") >"$folder/out" 2>"$folder/err" </dev/null || code=$?
    [ $code = 0 ] || one_line 69 'the stack is limited to 64 KiB, and ppcli needs 128: use ulimit -s 128'
fi

begin "a limit of address space counts as memory; force_memory tries all the same"
limited() {
    code=0
    last="ulimit -v 4000000; ppcli $*"
    (ulimit -v 4000000 && exec "$PPCLI" "$@") >"$folder/out" 2>"$folder/err" </dev/null || code=$?
}
if (ulimit -v 4000000 && exec "$PPCLI" version) >/dev/null 2>&1; then
    limited train "$net" --set 'model.sizes=12 16384*4 5' --dir ''
    one_line 69 'address space'
    limited train "$net" --set 'model.sizes=12 16384*4 5' --dir '' --set run.force_memory=on
    one_line 69 'cannot take '
    ok limited train "$net" --dir ''
    # 4 GiB of floats, of which nothing but the header is looked at
    python3 - "$folder" <<'END'
import struct, sys
for name, type_, shape, size in (('x', '<f4', '(1048576, 1024)', 1 << 32), ('y', '|u1', '(1048576,)', 1 << 20),
                                 ('tx', '<f4', '(1, 1024)', 4096), ('ty', '|u1', '(1,)', 1)):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (type_, shape)
    with open('%s/%s.npy' % (sys.argv[1], name), 'wb') as f:
        f.write(b'\x93NUMPY\1\0' + struct.pack('<H', 118) + head.ljust(118).encode())
        f.truncate(128 + size)
        f.seek(-1, 2)
        f.write(b'\1' if type_ == '|u1' else b'\0')
END
    config "$folder/big.ini" data.dataset=npy data.train_images=x.npy data.train_labels=y.npy data.test_images=tx.npy \
        data.test_labels=ty.npy 'model.sizes=1024 2' pipeline.stages=1
    limited train "$folder/big.ini" --dir ''
    one_line 69 'data 4.00)'
else
    skip "ppcli does not start in so little address space here (a sanitizer)"
fi

begin "no command hangs where address space is short, whatever its libraries do"
limits='75000 100000 150000 200000 300000 500000'
(ulimit -v 4000000 && exec "$PPCLI" version) >/dev/null 2>&1 || limits='' # a sanitizer
for limit in $limits; do
    for words in version 'keys run.gemm' 'plan --schedule 1f1b --stages 2 --microbatches 4' env \
        "explain $net" "train $net --dir= -q" "train $net --dir= -q --set run.gemm=cblas" \
        "train $net --dir= -q --set run.gemm=cblas --set run.threads=2"; do
        code=0
        last="ulimit -v $limit; ppcli $words"
        # shellcheck disable=SC2086 # words
        (ulimit -v $limit && exec timeout -s KILL 60 "$PPCLI" $words) >"$folder/out" 2>"$folder/err" </dev/null ||
            code=$?
        case $code in
        0) ;;
        69) same "$(wc -l <"$folder/err" | tr -d ' ')" 1 ;;
        *) complain "ends with $code: $(cat "$folder/err")" ;;
        esac
    done
done

begin "sizes beyond any machine are one line, at once"
for set in 'model.sizes=12 16777216*1000 5' 'model.sizes=16777216*4000' \
    'pipeline.microbatches=1073741824' 'train.batch_size=2147483647' 'pipeline.stages=2147483647' \
    'model.sizes=2147483647 2147483647' 'pipeline.replicas=99999999999999999999'; do
    for command in train explain plan; do
        code=0
        last="ppcli $command --set $set"
        timeout 20 "$PPCLI" $command "$net" --set "$set" --set run.dir= >"$folder/out" \
            2>"$folder/err" </dev/null || code=$?
        code_is 78
        same "$(grep -c 'error:' "$folder/err")" 2 # the problem, and how many there are
    done
done

begin "every command that prints: a full disk or a closed output is 74, in one line"
full() {
    for how in '>/dev/full' '>&-'; do
        code=0
        last="ppcli $* $how"
        case $how in
        '>&-') timeout 60 "$PPCLI" "$@" >&- 2>"$folder/err" </dev/null || code=$? ;;
        *) timeout 60 "$PPCLI" "$@" >/dev/full 2>"$folder/err" </dev/null || code=$? ;;
        esac
        code_is 74
        same "$(grep -c '^ppcli: error: ' "$folder/err")" 1
    done
}
if [ -c /dev/full ]; then
    : >"$folder/out"
    full keys --json
    full help train
    full completion zsh
    full explain "$net"
    full explain "$net" --format json
    for format in grid csv csv-comms json svg trace; do
        full plan "$net" --format $format
    done
    full tune "$net"
    full inspect "$checkpoint"
    full verify "$checkpoint"
    full diagnose "$folder/run"
    full report "$folder/run" -o -
    full bench "$net" --repeat 1 --warmup 1 --time 0.01 --no-ceilings
else
    skip "no /dev/full"
fi

begin "training goes on when its log goes nowhere, and is 74 at the end"
if [ -c /dev/full ]; then
    full train "$net" --dir "$folder/unread" --overwrite
    has "$folder/unread/summary.json" weights_sha256 || complain "no summary.json"
else
    skip "no /dev/full"
fi

begin "a limit of file size: 74, one line, and no torn file under a final name"
for blocks in 2 20; do
    last="ulimit -f $blocks"
    code=0
    (ulimit -f $blocks && exec "$PPCLI" train "$net" -q --dir "$folder/small" --overwrite \
        --epochs 300 --set run.log_every=1) >"$folder/out" 2>"$folder/err" </dev/null || code=$?
    one_line 74 'File too large'
    [ ! -e "$folder/small/summary.json" ] || complain "there is a summary.json"
    rm -rf "$folder/small"
done

begin "a full disk: 74 with the file's name, and no torn file under a final name"
mkdir "$folder/disk"
disk() { mount -t tmpfs -o "size=$1" none "$folder/disk" 2>/dev/null; }
if [ "$(id -u)" -eq 0 ] && disk 20k; then
    run train "$net" -q --dir "$folder/disk/run"
    umount "$folder/disk"
    one_line 74 'No space left on device'
    disk 64k
    run train "$net" -q --dir "$folder/disk/run" --set checkpoint.every_epochs=0 --set checkpoint.at_end=false
    [ ! -e "$folder/disk/run/timeline.json" ] || complain "there is a timeline.json"
    umount "$folder/disk"
    code_is 74
    err_has "$folder/disk/run/timeline.json: No space left on device"
else
    skip "cannot mount a small disk here"
fi

begin "a disk that is read-only is 77, before training"
if [ "$(id -u)" -eq 0 ] && disk 40k && mount -o remount,ro "$folder/disk" 2>/dev/null; then
    run train "$net" -q --dir "$folder/disk/run"
    umount "$folder/disk"
    one_line 77 'Read-only file system'
else
    umount "$folder/disk" 2>/dev/null || true
    skip "cannot mount a read-only disk here"
fi

begin "what is missing, in the way or of another kind is named, before training"
: >"$folder/file"
real='model.sizes=784 8 10'
run train "$folder/none.ini"
one_line 66 "$folder/none.ini"
mkdir "$folder/no-run"
run train "$folder/no-run"
one_line 66 "$folder/no-run"
run train "$net" --dir "$folder/file/x"
one_line 66 "$folder/file/x: Not a directory"
run train "$net" --dir "$folder/file"
one_line 74 "$folder/file is not a folder"
run train "$net" --dir "$folder/run"
one_line 78 "$folder/run is not empty"
run train "$net" --dir '' --set data.dataset=mnist --set "data.path=$folder/none" --set "$real"
one_line 66 "no mnist data in $folder/none"
run train "$net" --dir '' --trace "$folder/none/t.json"
one_line 66 "$folder/none/t.json"
run report "$folder/run" -o "$folder/none/x.html"
one_line 66 "$folder/none/x.html"

begin "what may not be read or written is 77 with its name, before training"
nobody() {
    code=0
    last="as nobody: ppcli $*"
    # shellcheck disable=SC2086 # words
    $drop "$PPCLI" "$@" >"$folder/out" 2>"$folder/err" </dev/null || code=$?
}
drop=
[ "$(id -u)" -ne 0 ] || drop='setpriv --reuid=65534 --regid=65534 --clear-groups'
if $drop "$PPCLI" version >/dev/null 2>&1; then
    mkdir "$folder/locked" "$folder/data"
    cp "$net" "$folder/secret.ini"
    cp "$root"/data/mnist-sample/*.gz "$folder/data"
    chmod 755 "$folder/data"
    chmod 000 "$folder/secret.ini" "$folder/data/train-images-idx3-ubyte.gz"
    chmod 555 "$folder/locked"
    nobody train "$folder/secret.ini"
    one_line 77 "cannot read $folder/secret.ini: Permission denied"
    nobody train "$net" --dir "$folder/locked/run"
    one_line 77 "$folder/locked/run: Permission denied"
    nobody train "$net" --dir "$folder/locked"
    one_line 77 "$folder/locked"
    nobody train "$net" --dir '' --set data.dataset=mnist --set "data.path=$folder/data" --set "$real"
    one_line 77 "$folder/data/train-images-idx3-ubyte.gz: Permission denied"
    chmod 755 "$folder/locked"
else
    skip "cannot become another user here"
fi

finish
