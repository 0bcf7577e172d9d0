#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ppcli estimate for other systems: tensor parallelism, --compare, --emit, --only, --layout.
# shellcheck disable=SC2048,SC2086,SC3045 # words; ulimit -v: dash, bash and busybox have it
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

here='llama-70b.ini --machine 8xh100-nvlink --ranks 64'

# numbers KEY: its value in every row of the last --format json
numbers() { awk -v key="\"$1\":" '$1 == key { sub(/,$/, "", $2); gsub(/"/, "", $2); print $2 }' "$folder/out"; }
# estimate WORDS: a run that must work
estimate() {
    run estimate $*
    code_is 0
}
# refused CODE TEXT WORDS...: one line with the text
refused() {
    code="$1" text="$2"
    shift 2
    run estimate "$@"
    code_is "$code"
    err_has "$text"
}

begin "70B on 64 GPUs: tensor parallelism in a host with few stages; and what ppcli trains, zero = 1"
estimate $here --stages 4,16 --microbatches 256,512 --format json
for key in group tensor stages zero step_s; do numbers $key >"$folder/$key"; done
awk '/"trained_by"/ { getline line; print (line ~ /ppcli/) }' "$folder/out" >"$folder/own"
paste "$folder/group" "$folder/tensor" "$folder/stages" "$folder/zero" "$folder/own" >"$folder/rows"
same "$(awk '$1 == 1 && $2 > 1 && $2 <= 8 && ($3 == 4 || $3 == 8)' "$folder/rows" | wc -l | awk '{ print ($1 > 0) }')" 1
same "$(awk '$2 == 1 && $4 == 1 && $5 == 1' "$folder/rows" | wc -l | awk '{ print ($1 > 0) }')" 1
estimate $here --stages 4,16 --microbatches 256,512
out_has 'Tensor parallelism (tp '
out_has "over ppcli's best"
out_has '--tensor-model-parallel-size'
out_has '[pipeline]'
same "$(sed -n '/ by /,/fastest/p' "$folder/out" | awk 'length > 100' | wc -l | tr -d ' ')" 0

# megatron_accepts RANKS: the rules of Megatron-LM's validate_args() for the words of the last run
megatron_accepts() {
    awk -v ranks="$1" '
    { gsub(/\047/, ""); value[$1] = NF > 1 ? $2 : 1 }
    function of(name, otherwise) { return ("--" name) in value ? value["--" name] : otherwise }
    function rule(holds, text) { if (!holds) { print text; bad = 1 } }
    END {
        tp = of("tensor-model-parallel-size", 1); pp = of("pipeline-model-parallel-size", 1)
        cp = of("context-parallel-size", 1); each = of("num-layers-per-virtual-pipeline-stage", 0)
        layers = of("num-layers", 0); mbs = of("micro-batch-size", 0); gbs = of("global-batch-size", 0)
        heads = of("num-attention-heads", 0); groups = of("num-query-groups", heads)
        layout = ("--pipeline-model-parallel-layout") in value
        if (of("account-for-embedding-in-pipeline-split", 0)) layers++
        if (of("account-for-loss-in-pipeline-split", 0)) layers++
        rule(ranks % (tp * pp * cp) == 0, "world size % (tp * pp * cp)")
        dp = ranks / (tp * pp * cp)
        rule(layers > 0 && (layout || layers % pp == 0), "num_layers % pp")
        if (each) {
            rule(pp > 1, "virtual stages need pp > 1")
            rule((layers / pp) % each == 0, "layers of a stage % layers of a virtual stage")
            rule((gbs / (mbs * dp)) % pp == 0, "micro-batches % pp, interleaved")
        }
        rule(heads % tp == 0, "num_attention_heads % tp")
        rule(groups % tp == 0, "num_query_groups % tp")
        rule(of("hidden-size", 0) % heads == 0, "hidden_size % num_attention_heads")
        rule(of("ffn-hidden-size", tp) % tp == 0, "ffn_hidden_size % tp")
        rule(mbs > 0 && gbs % (mbs * dp) == 0, "global batch % (micro batch * dp)")
        rule(!of("sequence-parallel", 0) || tp > 1, "sequence parallel needs tp > 1")
        rule(of("seq-length", 0) % (cp > 1 ? 2 * cp : 1) == 0, "seq_length % (2 * cp)")
        rule(of("num-experts", 0) % of("expert-model-parallel-size", 1) == 0, "num_experts % ep")
        rule((tp * dp * cp) % (of("expert-tensor-parallel-size", tp) * of("expert-model-parallel-size", 1)) == 0,
            "tp * dp * cp % (etp * ep)")
        exit bad }' "$folder/out" >"$folder/rules" || complain "Megatron-LM refuses: $(cat "$folder/rules")"
}

begin "five plans that Megatron-LM accepts"
estimate $here --stages 4,8 --only megatron --emit megatron
megatron_accepts 64
estimate $here --stages 4 --tensor 4 --chunks 20 --only megatron --emit megatron
out_has '--num-layers-per-virtual-pipeline-stage 1'
megatron_accepts 64
estimate gpt3-175b.ini --machine 8xa100 --ranks 128 --only megatron --emit megatron
megatron_accepts 128
estimate llama-70b.ini --machine 8xh100-nvlink --ranks 1024 --only megatron --emit megatron \
    --set model.n_layer=126 --set model.n_head=128 --set model.n_embd=16384 --set model.n_hidden=53248
megatron_accepts 1024
estimate $here --only megatron --emit megatron --tensor 8 --zero 1 --recompute full
out_has '--recompute-granularity full'
megatron_accepts 64
estimate $here --only megatron --emit megatron --set model.experts=8 --set model.n_layer=32 --set model.n_hidden=14336
out_has '--num-experts 8'
megatron_accepts 64

begin "the words of torchtitan and DeepSpeed"
estimate $here --emit torchtitan --only torchtitan --stages 4
out_has 'pipeline_parallel_degree=4,'
out_has 'pipeline_parallel_schedule="'
estimate $here --emit deepspeed --only deepspeed
out_has '"train_batch_size": 1024'
out_has '"stage": '
same "$(head -1 "$folder/out")" '{'

begin "--only leaves the schedules of a system; --schedule, --replicas, --chunks, --zero limit"
estimate $here --only megatron --format json
same "$(numbers schedule | grep -cvE '^(1f1b|interleaved)$')" 0
estimate $here --only torch --schedule interleaved-zb --replicas 2,4 --format json
same "$(numbers schedule | sort -u)" interleaved-zb
same "$(numbers replicas | grep -cvE '^[24]$')" 0
estimate $here --only megatron --chunks 5 --zero 1 --format json
same "$(numbers chunks | sort -u)" 5
same "$(numbers zero | sort -u)" 1

begin "what ppcli could train too is searched for the others: no division of --only is missed"
xl='gpt3-175b.ini --machine 8xh100-nvlink --ranks 16 --stages 1,2 --microbatches 1,4,8 --set model.n_layer=48
    --set model.n_head=25 --set model.n_embd=1600 --set model.block_size=1024 --batch-size 64 --format json'
estimate $xl --only megatron
least=$(numbers step_s | sort -g | head -1)
estimate $xl
same "$(numbers step_s | sort -g | head -1)" "$least"
same "$(grep -c '"ppcli"' "$folder/out" | awk '{ print ($1 > 0) }')" 1

begin "--compare prices one division, or says which rule it breaks"
estimate $here --compare "tp=4" # word by word: pp=1
refused 78 'model.n_head' llama-70b.ini --machine 8xh100-nvlink --ranks 48 --compare 'tp=3'
refused 78 'is not 64 ranks' llama-70b.ini --machine 8xh100-nvlink --ranks 64 --compare 'tp=4 pp=4 dp=2'
refused 78 'are a multiple of pp x vp = 12' llama-70b.ini --machine 8xh100-nvlink --ranks 64 --compare 'pp=4 vp=3 tp=4'
refused 64 "'tq'" llama-70b.ini --machine 8xh100-nvlink --ranks 64 --compare 'tq=4'
refused 64 'write a number from 1' llama-70b.ini --machine 8xh100-nvlink --ranks 64 --compare 'tp=0'
refused 78 'ep = 2 needs experts' llama-70b.ini --machine 8xh100-nvlink --ranks 64 --compare 'ep=2'
refused 78 '--compare' mnist.ini --machine laptop --compare 'pp=2'
refused 64 '--machine' llama-70b.ini --compare 'pp=2'
refused 78 'has no device.fp8' llama-70b.ini --machine 8xa100 --ranks 64 --fp8

begin "experts lie on ranks of tensor, data and context parallelism"
experts='--set model.n_layer=32 --set model.n_embd=4096 --set model.n_head=32 --set model.n_hidden=14336'
large='llama-70b.ini --machine 8xh100-nvlink --ranks 64 --compare'
run estimate $large 'tp=8 pp=2 ep=8' $experts --set model.experts=8 --emit megatron # dp = 4
code_is 0
out_has '--expert-tensor-parallel-size 1'
run estimate $large 'tp=4 pp=2 ep=8' $experts --set model.experts=8 --emit megatron # dp = 8
code_is 0
out_lacks '--expert-tensor-parallel-size'
refused 78 'tp x dp x cp = 2 is not a multiple of ep = 8' $large 'tp=2 pp=32 ep=8' $experts --set model.experts=8

begin "what does not fit is said; what is on a rank once is counted once"
large='llama-70b.ini --machine 8xh100-nvlink --ranks 64 --compare'
run estimate $large 'zero=0'
code_is 0
out_has 'It does not fit: it takes 1332 GB of a rank that may hold 74 GB.'
run estimate $large 'zero=3 recompute=full' --fp8 # copies in fp8 of what is gathered only
out_lacks 'It does not fit'
experts='--set model.n_layer=32 --set model.n_embd=4096 --set model.n_head=32 --set model.n_hidden=14336'
run estimate $large 'ep=8' $experts --set model.experts=8
out_has '46.7 billion parameters' # Mixtral 8x7B
# peak WORDS...: bytes that --compare says of GPT-2 XL on one rank without shards
peak() {
    estimate gpt3-175b.ini --machine 8xh100-nvlink --ranks 1 --compare zero=0 --batch-size 1 --set model.n_layer=48 \
        --set model.n_head=25 --set model.n_embd=1600 --format json $*
    numbers peak_bytes
}
tied=$(peak --set model.tie_weights=on)
untied=$(peak --set model.tie_weights=off)
same "$((untied - tied))" "$((50257 * 1600 * 18))" # weight, gradient, copy and two moments

begin "a machine file that cannot be meant is refused"
cp "$(dirname "$0")/../../configs/machines/8xh100-nvlink.ini" "$folder/machine.ini"
sed 's/^reserve.*/reserve = 90G/' "$folder/machine.ini" >"$folder/reserve.ini"
sed '/^bf16/d' "$folder/machine.ini" >"$folder/halves.ini"
sed '/^tf32/d' "$folder/machine.ini" >"$folder/processor.ini"
refused 78 'is all of device.memory' llama-70b.ini --machine "$folder/reserve.ini" --ranks 64 --compare 'tp=8 pp=4'
refused 78 'has no device.bf16' llama-70b.ini --machine "$folder/halves.ini" --ranks 64 --compare 'tp=8 pp=4'
refused 78 'has no device.bf16' llama-70b.ini --machine "$folder/halves.ini" --ranks 64 --only megatron
refused 78 'has device.tf32' llama-70b.ini --machine "$folder/processor.ini" --ranks 64 --tensor 2
refused 78 'has no device.fp8' llama-70b.ini --machine 8xa100 --ranks 64 --compare 'tp=8 pp=4' --fp8

begin "a plan of long texts and large vocabularies allocates nothing: only kernels have a limit"
run estimate $large 'tp=8 pp=4' --set model.block_size=131072
out_has '134.2 million tokens a step' 'It does not fit'
run estimate $large 'tp=8 cp=8 zero=3 recompute=full' --set model.block_size=131072
out_lacks 'It does not fit'
run estimate $large 'tp=8 cp=2 pp=4' --set model.block_size=65536 --set model.vocab_size=128256
code_is 0
estimate llama-70b.ini --machine 8xh100-nvlink --ranks 64 --set model.block_size=131072 --batch-size 32 --format json
same "$(numbers step_s | awk '$1 > 1' | wc -l | awk '{ print ($1 > 0) }')" 1
refused 78 'set a smaller model.block_size' llama-70b.ini --machine 8xh100-nvlink --ranks 64 --only ppcli \
    --set model.block_size=131072
run explain llama-70b.ini --set model.block_size=131072
code_is 78
err_has 'set a smaller model.block_size'

begin "a page draws one step, and says where it is a part"
run estimate $large 'tp=8 pp=4' --html "$folder/page.html" # 512 micro-batches
same "$(grep -c '"microbatches": 512' "$folder/page.html")" 1
run estimate $large 'tp=4 pp=16 vp=5' --html "$folder/page.html"
same "$(grep -c 'interleaved, a step of 80 of the 1024 micro-batches' "$folder/page.html" | awk '{ print ($1 > 0) }')" 1

begin "ppcli trains no mixture of experts"
run plan llama-small.ini --set model.experts=4
code_is 78
err_has 'ppcli trains no mixture of experts'

begin "layouts of Megatron-LM are read and written"
estimate $here --layout 'Et*10|(t*10,|)*6t*10,L' --stages 8 --emit megatron --only megatron
out_has "--pipeline-model-parallel-layout"
same "$(sed -n "s/^--pipeline-model-parallel-layout '\(.*\)'/\1/p" "$folder/out")" 'Et*10|(t*10|)*6t*10L'
refused 64 "E comes first" llama-70b.ini --machine 8xh100-nvlink --ranks 64 --layout 't*80|L'
refused 64 "')'" llama-70b.ini --machine 8xh100-nvlink --ranks 64 --layout 'E(t*80|L'

begin "405B on 1,024 ranks, which no pure pipeline fits: an answer in little memory"
limit=2097152
(ulimit -v "$limit" && exec "$PPCLI" version) >/dev/null 2>&1 || limit=unlimited # a sanitizer
code=0
(ulimit -v "$limit" && exec timeout 600 "$PPCLI" estimate llama-70b.ini --machine 8xh100-nvlink --ranks 1024 \
    --set model.n_layer=126 --set model.n_head=128 --set model.n_embd=16384 --set model.n_hidden=53248 \
    --set model.vocab_size=128256 --set model.block_size=8192 --batch-size 512 --format json) \
    >"$folder/out" 2>"$folder/err" </dev/null || code=$?
code_is 0
same "$(numbers tensor | awk '$1 > 1' | head -1 | wc -l | tr -d ' ')" 1

finish
