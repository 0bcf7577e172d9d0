#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.precision = bf16 on the processor: its memory and costs in explain, plan and training, and what
# train says its digest is comparable with.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$folder" || exit 1
config net.ini data.dataset=synthetic data.train_samples=64 data.test_samples=8 'model.sizes=21 64 33 5' \
    pipeline.stages=2 pipeline.microbatches=2 train.batch_size=16 train.max_steps=2 run.backend=cpu run.gemm=fma

begin "a digest of own products is comparable with every processor's, of libraries with the same library's"
for precision in f32 bf16; do
    shows 'comparable with  any processor, number of stages and threads, and schedule, at the same run.precision' \
        run train net.ini -q --dir $precision --set run.precision=$precision
done
[ "$(sha f32/summary.json)" != "$(sha bf16/summary.json)" ] || complain "f32 and bf16 give the same weights"
for words in run.gemm=cblas run.backend=reference; do
    run train net.ini -q --dir '' --set $words
    [ "$code $words" != '69 run.gemm=cblas' ] || continue # no such library here
    code_is 0
    out_has 'comparable with  the same kind of processor and, with run.gemm = cblas, the same library'
done

# numbers KEY: all of the last output, in their order
numbers() { tr ',{}[]' '\n' <"$folder/out" | sed -n "s/^ *\"$1\": //p" | tr '\n' ' '; }

begin "explain: packed weights take a word for two factors, all else the bytes of f32"
for precision in f32 bf16; do
    ok run explain net.ini --set run.precision=$precision --format json
    for key in packed_bytes parameter_bytes gradient_bytes optimizer_bytes activation_bytes message_bytes data_bytes \
        scratch_bytes peak_bytes flops_f flops_i flops_w; do
        numbers $key >"$precision.${key%_bytes}"
    done
done
same "$(cat f32.packed)" "$((64 * 21 * 4)) $(((48 * 64 + 16 * 33) * 4)) " # 33 outputs take 48 columns
same "$(cat bf16.packed)" "$((64 * 11 * 4)) $(((48 * 32 + 16 * 17) * 4)) "
for key in parameter gradient optimizer activation message data scratch flops_f flops_i flops_w; do
    same "$(cat bf16.$key)" "$(cat f32.$key)"
done
less=$(paste -d ' ' f32.packed bf16.packed f32.peak bf16.peak | awk '{ print $1 - $3 == $5 - $7, $2 - $4 == $6 - $8 }')
same "$less" '1 1'

begin "plan and training take what explain says"
for precision in f32 bf16; do
    ok run plan net.ini --set run.precision=$precision --format json
    same "$(numbers peak_bytes)" "$(cat $precision.peak)"
    for key in peak packed; do
        same "$(tr ',{}[]' '\n' <$precision/summary.json | sed -n "s/^ *\"${key}_bytes\": \([0-9]\)/\1/p" | tr '\n' ' ')" \
            "$(cat $precision.$key)"
    done
done

begin "a limit that holds the words of bf16 and not those of f32"
limit=$(awk '{ print ($1 > $2 ? $1 : $2) }' bf16.peak)
best="--stages 2 --replicas 1 --microbatches 2 --schedule 1f1b --set run.packed=on --memory $limit"
# shellcheck disable=SC2086
ok run tune net.ini --set run.precision=bf16 $best
# shellcheck disable=SC2086
fails 78 "--memory" run tune net.ini $best
finish
