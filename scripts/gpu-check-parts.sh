#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One part of scripts/gpu-check.sh, which starts it: gpu-check-parts.sh PART. It prints what it does;
# ends with 0, 77 (skipped) or anything else; and leaves what is worth a place in the table in
# OUT/PART.said.
set -u
PART=$1
: "${OUT:?} ${PPCLI:?} ${TESTS:?} ${ROOT:?} ${SAMPLE:?}"
CONFIGS=${GPU_CHECK_CONFIGS:-$ROOT/configs} # of the benchmarks

say() { printf '%s\n' "$*" >"$OUT/$PART.said"; }

skip() {
    say "$1"
    exit 77
}

# A training run of few steps on a sample; the rest of the words are options of ppcli train.
CONFIG=$ROOT/configs/mnist-sample.ini DATA=mnist-sample
train() {
    "$PPCLI" train "$CONFIG" --set "data.dataset=$DATA" --set "data.path=${SAMPLE%/*}/$DATA" \
        --dir '' -q --set run.backend=cuda "$@"
}

# The digest of the weights, or the empty word; its exit code is that of the run.
digest() {
    train "$@" >"$OUT/$PART.run" 2>&1
    digest_code=$?
    sed -n 's/^weights_sha256 *//p' "$OUT/$PART.run"
    [ "$digest_code" -eq 0 ] || cat "$OUT/$PART.run" >&2
    return "$digest_code"
}

part_env() {
    "$PPCLI" env
    "$PPCLI" env --format json >"$OUT/env.json"
    command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -q >"$OUT/nvidia-smi.txt" 2>&1
    say "$("$PPCLI" env | sed -n 's/^  device \([0-9]*\) *\([^,]*\), [0-9]* multiprocessors.*/\1: \2/p' | paste -sd ' ' -)"
}

# Every op against the processor, and whatever else there is for a device.
part_ops() {
    good=0 bad=0 left=0 reasons=''
    for program in "$TESTS"/gpu_* "$TESTS"/test_gpu*; do
        case $program in *.p) continue ;; esac
        if [ ! -f "$program" ] || [ ! -x "$program" ]; then
            continue
        fi
        echo "== $program"
        timeout -k 5 60 "$program" # one that hangs takes no time of the others
        case $? in
        0) good=$((good + 1)) ;;
        77 | 127) left=$((left + 1)) ;; # 127: a library of it is not here
        *) bad=$((bad + 1)) reasons="$reasons ${program##*/}" ;;
        esac
    done
    [ $((good + bad + left)) -gt 0 ] || skip 'no programs gpu_* here'
    say "$good passed, $bad failed, $left skipped$reasons"
    [ "$bad" -eq 0 ] || return 1
    [ "$good" -gt 0 ] || skip "all $left were skipped"
}

# The same bits with every schedule and every number of stages on one device.
part_equality() {
    small='--epochs 1 --max-steps 12 --batch-size 64 --microbatches 8 --set checkpoint.at_end=off'
    # shellcheck disable=SC2086 # words
    set -- $small --set 'model.sizes=784 64*7 10' --set run.devices=0
    one=$(digest "$@" --stages 1 --schedule 1f1b) || return 1
    runs=1 refused=0 differ=''
    same() {
        name=$1
        shift
        other=$(digest "$@")
        code=$?
        if [ "$code" -eq 78 ]; then
            refused=$((refused + 1)) # this shape is not for this schedule
            return
        fi
        runs=$((runs + 1))
        echo "$name: ${other:-exit code $code}"
        [ "$other" = "$one" ] || differ="$differ $name"
    }
    for stages in 2 3 4; do
        same "1f1b/$stages" "$@" --stages "$stages" --schedule 1f1b
    done
    same parts/2 "$@" --stages 2 --schedule 1f1b --set run.partition_sms=on
    same no-graphs/2 "$@" --stages 2 --schedule 1f1b --set run.graphs=off
    for schedule in $("$PPCLI" keys pipeline.schedule --json | tr ',' '\n' |
        sed -n 's/^ *"\([a-z0-9-]*\)"$/\1/p'); do
        case $schedule in auto | 1f1b) continue ;; esac
        same "$schedule/4" "$@" --stages 4 --schedule "$schedule"
    done
    say "$runs runs, $refused refused${differ:+, other bits:$differ}"
    [ -z "$differ" ]
}

# Several devices: the same bits by every way between them, recorded or not, and with shards of the
# optimizer's state. What a library is missing for is left out.
part_devices() {
    n=$("$PPCLI" env | grep -c '^  device [0-9].*multiprocessors')
    [ "$n" -ge 2 ] || skip "$n device here"
    said='' bad=0
    set -- --max-steps 8 --set checkpoint.at_end=off --set 'model.sizes=784 64*7 10' --microbatches 4
    for shape in '--stages 2' '--stages 2 --schedule zb-h1' \
        '--stages 1 --replicas 2 --set train.optimizer=adam --set train.zero=1'; do
        one=''
        for way in staged threads nccl 'nccl --set run.graphs=on'; do
            # shellcheck disable=SC2086 # words
            other=$(digest "$@" $shape --transport $way)
            code=$?
            echo "$shape, $way: ${other:-exit code $code}"
            [ "$code" -ne 69 ] || continue # no peer access, no NCCL
            one=${one:-$other}
            if [ "$code" -ne 0 ] || [ "$other" != "$one" ]; then
                bad=1 said="$said${said:+, }$way ($shape) differs"
            fi
        done
    done
    say "$n devices${said:+: $said}"
    return "$bad"
}

# Transformers and convolutions: the same bits for other stages, schedules and launches, with
# forwards computed again, and the first steps' losses as the processor's.
part_nets() {
    said='' bad=0
    for net in gpt-char:shakespeare-sample llama-small:shakespeare-sample mnist-conv:mnist-sample \
        resnet18-cifar10:cifar10-sample; do
        CONFIG=$CONFIGS/${net%:*}.ini DATA=${net#*:}
        set -- --max-steps 6 --microbatches 4 --set checkpoint.at_end=off \
            --set pipeline.assignment=flops --set data.test_samples=16
        one=$(digest "$@" --stages 1 --set run.graphs=off) || return 1
        there=$(loss_of)
        result=ok
        for other in '--stages 2 --schedule 1f1b' '--stages 3 --schedule zb-h1' \
            '--stages 2 --schedule gpipe --set pipeline.recompute=all'; do
            # shellcheck disable=SC2086 # words
            [ "$(digest "$@" $other)" = "$one" ] || result="other bits: $other"
        done
        digest "$@" --stages 2 --set run.backend=cpu >/dev/null || return 1
        here=$(loss_of)
        awk -v a="$there" -v b="$here" 'BEGIN { d = a - b; exit !(a > 0 && d * d <= 1e-6 * b * b) }' ||
            result="loss $there, processor's $here"
        [ "$result" = ok ] || bad=1
        said="$said${said:+, }${net%:*} $result"
        echo "${net%:*}: $result, loss $there and $here"
    done
    say "$said"
    return "$bad"
}

loss_of() { sed -n 's/^train loss *\([0-9.]*\) .*/\1/p' "$OUT/$PART.run"; }

accuracy_of() { sed -n 's/^test accuracy *\([0-9.]*\) .*/\1/p' "$OUT/$PART.run"; }

# Of the same training here and there; the third word is how far apart they may be.
compare_accuracy() {
    awk -v a="$1" -v b="$2" -v near="$3" 'BEGIN { d = a - b; exit !(a > 0 && d <= near && -d <= near) }'
}

part_accuracy() {
    digest --epochs 5 --stages 2 >/dev/null || return 1
    there=$(accuracy_of)
    digest --epochs 5 --stages 2 --set run.backend=cpu >/dev/null || return 1
    here=$(accuracy_of)
    say "cuda $there, cpu $here"
    compare_accuracy "$there" "$here" 0.01
}

part_precision() {
    digest --epochs 5 >/dev/null || return 1
    exact=$(accuracy_of) said="f32 $exact" bad=0
    for precision in tf32 bf16; do
        digest --epochs 5 --set run.precision="$precision" >/dev/null || return 1
        found=$(accuracy_of)
        said="$said, $precision $found"
        compare_accuracy "$found" "$exact" 0.02 || bad=1
    done
    say "$said"
    return "$bad"
}

# sanitize TOOL PROGRAM WORDS...: the program under it. Skips the part where the tool cannot look at this
# device, as in some virtual machines. Calls that give an error are none of its business: "not ready" is
# one, and a library that asks an older driver for a newer function gets one.
sanitize() {
    tool=$1
    shift
    timeout -k 5 45 compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 9 "$@" \
        >"$OUT/$PART.run" 2>&1
    sanitize_code=$?
    cat "$OUT/$PART.run"
    if [ $sanitize_code -ne 0 ] && grep -q 'Device not supported' "$OUT/$PART.run"; then
        skip 'compute-sanitizer does not support the device here'
    fi
    case $sanitize_code in
    0 | 77) said="$said${said:+, }$tool $name clean" ;;
    124 | 137) said="$said${said:+, }$tool $name not known (time)" ;; # what does not end in time is not known
    *)
        say "$said${said:+, }$tool $name found something"
        exit 1
        ;;
    esac
}

# checkops sees all kernels; a short training sees the streams.
part_sanitizer() {
    command -v compute-sanitizer >/dev/null 2>&1 || skip 'no compute-sanitizer in PATH'
    said=''
    for tool in memcheck racecheck; do
        name=gpu_checkops
        [ ! -x "$TESTS/$name" ] || sanitize "$tool" "$TESTS/$name" --rounds 1
    done
    name=train
    sanitize memcheck "$PPCLI" train "$ROOT/configs/mnist-sample.ini" --set "data.path=$SAMPLE" --dir '' -q \
        --max-steps 3 --stages 2 --set run.backend=cuda --set data.test_samples=64
    case $said in *clean*) say "$said" ;; *) skip "$said" ;; esac
}

# The time of every kernel of three nets, with products whose bits repeat and with the fastest ones, and
# what Nsight Compute says of attention.
# shellcheck disable=SC2046,SC2086 # words
part_kernels() {
    for net in gpt2-124m:gpt2 gpt-char-large:g4 resnet50-cifar10-colossal:g3; do
        for exact in true false; do
            "$PPCLI" bench --ops "$CONFIGS/${net%:*}.ini" --set run.backend=cuda --set run.precision=bf16 -q \
                --format json -o "$OUT/kernels-${net#*:}-$exact.json" --set train.exact=$exact \
                $(words_of "${net#*:}") ${GPU_CHECK_CEILINGS:-} || return 1
        done
    done
    say "$(reached attention); $(reached linear); $(reached conv)"
    command -v ncu >/dev/null 2>&1 || return 0
    timeout -k 5 40 ncu --set basic -k regex:attention -c 6 --csv "$PPCLI" bench --ops \
        "$CONFIGS/gpt2-124m.ini" --set run.backend=cuda --set run.precision=bf16 -q $(words_of gpt2) \
        >"$OUT/ncu-attention.csv" 2>&1 || echo 'ncu: no counters here'
}

# bench NAME WORDS...: the table into the log, everything into OUT/NAME.json.
bench() {
    name=$1
    shift
    "$PPCLI" bench "$@" --set data.dataset=synthetic --set run.backend=cuda --format json \
        -o "$OUT/$name.json" -q
}

# The largest samples/s of the tables in this part's log for each precision: "tf32 2100000 (52.1 %)".
fastest() {
    awk -F '|' '
        { for (i = 2; i < NF; i++) { cell = $i; gsub(/^ +| +$/, "", cell); row[i] = cell } }
        /samples\/s/ && /\|/ { for (i = 2; i < NF; i++) at[row[i]] = i; next }
        at["check"] && (row[at["check"]] == "ok" || row[at["check"]] == "~") {
            sub(/^! /, "", row[at["samples/s"]]) # ranks waited for a core: the table says so
            split(row[at["samples/s"]], rate, " "); p = row[at["precision"]]
            if (rate[1] + 0 > best[p]) { best[p] = rate[1] + 0; peak[p] = row[at["of peak"]] }
        }
        END { for (p in best) printf "%s %d/s%s; ", p, best[p], peak[p] ? " (" peak[p] " of peak)" : "" }
    ' "$OUT/$PART.log" | sed 's/; $//'
}

# GPU_CHECK_CEILINGS: more words, for a device that is only emulated.
# shellcheck disable=SC2086
part_g1() {
    bench g1 "$CONFIGS/gpu-small.ini" --set run.precision=f32,tf32,bf16 --set run.graphs=on,off \
        --repeat 3 --time 0.5 ${GPU_CHECK_CEILINGS:-}
    code=$?
    say "$(fastest)"
    return "$code"
}

# shellcheck disable=SC2086
part_g2() {
    bench g2 "$CONFIGS/gpu-wide.ini" --microbatches 1,8 --set run.precision=tf32,bf16 \
        --set data.train_samples=65536 --repeat 2 --time 1 ${GPU_CHECK_CEILINGS:-}
    code=$?
    say "$(fastest)"
    return "$code"
}

# How far the bubble that was measured is over the one of the simulated plan, at most.
bubble_distance() {
    awk -F '|' '
        { for (i = 2; i < NF; i++) { cell = $i; gsub(/^ +| +$/, "", cell); row[i] = cell } }
        /samples\/s/ && /\|/ { for (i = 2; i < NF; i++) at[row[i]] = i; next }
        at["check"] && row[at["check"]] == "ok" && row[at["stages"]] > 1 {
            d = row[at["+ waiting"]]
            n++; most = d > most ? d : most
        }
        END { if (n) printf "bubble at most %.1f points over the simulated one (%d rows)", most, n }
    ' "$OUT/$PART.log"
}

part_g5() {
    bench g5-whole "$CONFIGS/gpu-pipeline.ini" --stages 1,2,4 --set run.partition_sms=off \
        --set data.train_samples=65536 --repeat 2 --time 0.7 --no-ceilings || return 1
    bench g5 "$CONFIGS/gpu-pipeline.ini" --stages 2,4 --microbatches 4,8,16 \
        --schedule 1f1b,zb-h1 --set run.partition_sms=on --set data.train_samples=65536 \
        --repeat 2 --time 0.7 --no-ceilings
    code=$?
    say "$(bubble_distance)"
    return "$code"
}

# Of the tables of ppcli bench --ops: what the ops of one kind reach of their ceiling, forwards.
reached() {
    awk -F '|' -v op="$1" '
        { for (i = 2; i < NF; i++) { cell = $i; gsub(/^ +| +$/, "", cell); row[i] = cell } }
        /% of ceiling/ && /\|/ { for (i = 2; i < NF; i++) at[row[i]] = i; next }
        at["op"] && index(row[at["op"]], op) == 1 {
            p = row[at["F, % of ceiling"]]; n++; least = n == 1 || p < least ? p : least
            most = p > most ? p : most
        }
        END { if (n) printf "%s %d to %d %% of its ceiling", op, least, most }
    ' "$OUT/$PART.log"
}

# How fast ppcli is, and how many times as fast as each peer.
ratios() {
    awk -F '|' -v part="$1" '
        { for (i = 2; i < NF; i++) { gsub(/^ +| +$/, "", $i) } }
        $2 == part && $3 ~ /^ppcli, / && $4 != "" { printf "%s%s %d/s", said++ ? "; " : "", $3, $4 }
        $2 == part && $3 ~ /^PyTorch / && $7 != "" { printf ", %.2f x %s", $7, $3 }
    ' "$OUT/$PART.log"
}

# race CASE SECONDS WORDS...: ppcli and PyTorch in turns, ended in time for the table.
race() {
    name=$1 limit=$2
    shift 2
    command -v python3 >/dev/null 2>&1 || skip 'no python3'
    python3 "$ROOT/scripts/peers/compare.py" --program "$PPCLI" --case "$name" --seconds 0.7 \
        --limit "$limit" --out "$OUT/peers/$name" "$@"
}

part_peers() {
    python=${PEERS_PYTHON:-python3}
    command -v "$python" >/dev/null 2>&1 || skip "no $python"
    "$python" -c 'import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)' 2>/dev/null ||
        skip "no torch with CUDA in $python"
    code=0 said=''
    for name in g1 g2; do
        race "$name" 110 --blocks 4 --only bf16 || code=1
        said="$said${said:+; }$(ratios "$name")"
    done
    say "$said"
    return "$code"
}

# net CONFIG OP: what the net's ops reach, and the net beside PyTorch in bf16.
# GPU_CHECK_PEERS: other words than that, for a device that is only emulated.
# shellcheck disable=SC2046,SC2086
net() {
    config=$1 op=$2
    "$PPCLI" bench --ops "$CONFIGS/$config.ini" --set run.backend=cuda --set run.precision=bf16 -q \
        --format json -o "$OUT/$PART-ops.json" $(words_of "$PART") ${GPU_CHECK_CEILINGS:-} || return 1
    ops=$(reached "$op")
    say "$ops"
    race "$PART" 110 --blocks 3 ${GPU_CHECK_PEERS:---only bf16}
    code=$?
    say "$(ratios "$PART")${ops:+; $ops}"
    return "$code"
}

# ResNet-50 with its own convolutions and with those of cuDNN.
# shellcheck disable=SC2046,SC2086
part_conv() {
    "$PPCLI" env | grep -q '^  cuDNN *[0-9]' || skip 'no cuDNN'
    said=''
    for conv in own cudnn; do
        bench conv-$conv "$CONFIGS/resnet50-cifar10-colossal.ini" --stages 1 --schedule gpipe $(words_of conv) \
            --set run.conv=$conv --set run.precision=bf16 --repeat 2 --time 1 --no-ceilings || return 1
        said="$said${said:+, }$conv $(sed -n 's/.*"samples_per_second": \([0-9]*\).*/\1/p' "$OUT/conv-$conv.json" | tail -n 1)/s"
    done
    say "$said"
}

# The words of a net's measurement: random data, so that none is needed there.
words_of() {
    case $1 in
    g3 | conv) echo --batch-size 128 --microbatches 1 --set data.augment=none --set data.dataset=synthetic \
        --set data.shape=32x32x3 ;;
    g4) echo --microbatches 1 --set data.dataset=synthetic-tokens --set model.vocab_size=65 ;;
    gpt2) echo --batch-size 32 --microbatches 4 --set data.dataset=synthetic-tokens --set data.path= ;;
    esac
}

case $PART in
env) part_env ;;
ops) part_ops ;;
equality) part_equality ;;
nets) part_nets ;;
devices) part_devices ;;
accuracy) part_accuracy ;;
precision) part_precision ;;
sanitizer) part_sanitizer ;;
g1) part_g1 ;;
g2) part_g2 ;;
g5) part_g5 ;;
peers) part_peers ;;
kernels) part_kernels ;;
conv) part_conv ;;
g3) net resnet50-cifar10-colossal conv ;;
g4) net gpt-char-large attention ;;
gpt2) net gpt2-124m attention ;;
*) exit 64 ;;
esac
