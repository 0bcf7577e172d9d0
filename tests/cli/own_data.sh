#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A person's own table: from `ppcli init` to predictions.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

samples=$(cd "$(dirname "$0")/../../data/mnist-sample" && pwd)
cd "$folder" || exit 1
# table N: values around (label, -label), three classes
table() {
    awk -v n="$1" 'BEGIN { srand(n); print "a,b,kind"
        for (i = 0; i < n; i++) printf "%.3f,%.3f,%d\n", i % 3 + rand() / 2, rand() / 2 - i % 3, i % 3 }'
}
table 120 >train.csv
table 31 >test.csv

begin "init fits a config to a table"
ok run init mlp train.csv test.csv --label kind -o own.ini
grep -q '^sizes = 2 64 64 3 ' own.ini || complain "sizes: $(grep sizes own.ini)"
grep -q '120 + 31 samples of 2 values, 3 classes' own.ini || complain 'no counts'
fails 64 'own.ini exists' run init train.csv test.csv -o own.ini
shows 'split = 0.2 ' run init train.csv
out_lacks 'test_file'
fails 66 'absent.csv' run init train.csv absent.csv

begin "init takes two stages where its simulation says that they pay, else one and says so"
# columns classes rows stages: hidden layers have 64 units below 5000 rows, else 256
while read -r columns classes rows stages; do
    for n in "$rows" 20; do
        awk -v c="$columns" -v k="$classes" -v n="$n" 'BEGIN { for (i = 0; i < n; i++) {
            for (j = 0; j < c; j++) printf "%d,", (i + j) % 3 - 1
            print i % k } }' >"n$n.csv"
    done
    ok run init "n$rows.csv" n20.csv
    same "$columns $classes $rows $(sed -n 's/^stages = \([0-9]*\).*/\1/p' "$folder/out")" "$columns $classes $rows $stages"
    same "$(grep -c '^; 2 would hardly be faster' "$folder/out")" $((2 - stages))
    cp "$folder/out" sized.ini
done <<'EOF'
2 3 120 1
3000 5 100 1
4 3 5000 1
20 3 5000 1
100 10 5000 2
EOF
ok run explain sized.ini
run init
grep -q '^stages = 2 ' "$folder/out" || complain 'the digits have one stage'

begin "init into another folder names the files so that the config finds them"
mkdir sub
ok run init train.csv test.csv -o sub/own.ini
ok run train sub/own.ini -q --dir '' --epochs 1
cp train.csv train.data
shows 'train_file = train.data' run init train.data test.csv --label kind

begin "init says what each column holds, and brings it to where a network learns"
out_has 'numbers -' 'the label' 'scale = standard'
awk -F, -v OFS=, 'NR > 1 { $1 = $1 * 5e9 } 1' train.csv >far.csv
ok run init far.csv far.csv -o far.ini
ok run train far.ini -q --dir '' --epochs 1
err_lacks 'warning'

begin "columns far from 0, or of very different sizes, are scaled without a warning"
awk 'BEGIN { for (i = 0; i < 300; i++) print 1700000000 + 256 * (i * 7 % 97) "," i % 2 }' >time.csv </dev/null
awk 'BEGIN { for (i = 0; i < 300; i++) print 101325 + (i * 37 % 101) / 10 "," i % 2 }' >pascal.csv </dev/null
awk 'BEGIN { for (i = 0; i < 300; i++) print 20 + i % 7 "," 100 + i * 13 % 61 "," i % 2 }' >sizes.csv </dev/null
for table in time pascal sizes; do
    ok run init $table.csv -o $table.ini
    ok run train $table.ini -q --dir '' --epochs 1
    err_lacks 'warning'
done

begin "init refuses what a run would"
sed '7s/^[^,]*/inf/' train.csv >odd.csv
fails 65 "'inf'" run init odd.csv test.csv
sed '1s/b,/kind,/' train.csv >odd.csv
fails 78 "2 columns of $PWD/odd.csv are called 'kind'; rename the others" run init odd.csv test.csv --label kind
sed '1s/kind/kind #/' train.csv >odd.csv
run init odd.csv odd.csv --label 'kind #'
code_is 78
err_has "the name 'kind #' cannot be written in an INI file"
printf 'PK\3\4abcd' >odd.npz
fails 65 'an npz?' run init odd.npz odd.npz odd.npz odd.npz
fails 64 'train.csv' run train train.csv

begin "what init prints without files trains on the digits that come with ppcli"
ok run init
cp out digits.ini
ok run explain digits.ini

begin "it trains, to the same weights on one stage and on two"
for stages in 1 2; do
    ok run train own.ini -q --dir "run$stages" --stages $stages
    grep weights_sha256 "run$stages/summary.json" >>sums
done
same "$(sort -u sums | wc -l)" 1

begin "eval --predictions writes a line for each sample, the same on any ranks"
for ranks in '--stages 1' '--stages 2' '--stages 2 --replicas 3'; do
    # shellcheck disable=SC2086
    shows "test accuracy    $(awk -F, 'NR > 1 { ok += $1 == $2 } END { printf "%.4f", ok / (NR - 1) }' p.csv)" \
        run eval own.ini --checkpoint run2 --predictions p.csv $ranks
    cksum <p.csv >>files
    err_has 'weights from run2/checkpoints/step-'
done
same "$(wc -l <p.csv)" 32
same "$(head -n 1 p.csv)" \
    'label,prediction,logit0,logit1,logit2,probability,probability 0,probability 1,probability 2'
same "$(sort -u files | wc -l)" 1
fails 64 'must end in .csv' run eval own.ini --checkpoint run2 --predictions own.ini

begin "the logits of a test are never in memory all at once: 4 GB of them meet the limit of the file first"
config logits.ini data.dataset=synthetic-tokens data.train_samples=16 data.test_samples=4000 model.type=gpt \
    model.n_layer=1 model.n_head=1 model.n_embd=8 model.block_size=64 model.vocab_size=4000 train.batch_size=8 \
    train.epochs=1 train.max_steps=1 train.eval_interval=1000 run.threads=1 pipeline.stages=1
ok run train logits.ini --dir logits -q --set data.test_samples=8
code=0
last='eval logits.ini --predictions with 2 GB'
# shellcheck disable=SC3045 # every shell here has it
(ulimit -v 2000000 && ulimit -f 4000 && exec "$PPCLI" eval logits.ini --checkpoint logits --predictions logits.csv) \
    >"$folder/out" 2>"$folder/err" || code=$?
code_is 74
err_has 'logits.csv'
[ ! -e logits.csv ] || complain 'half of a file'

begin "a test whose labels are all 0, as they are where nobody knows them, gets its predictions"
grep -e kind -e ',0$' test.csv >zeros.csv
ok run eval own.ini --checkpoint run2 --predictions p.csv --set data.test_file=zeros.csv
same "$(wc -l <p.csv)" "$(wc -l <zeros.csv)"

begin "rows of a table that are images go through a convolution"
images() {
    awk -v n="$1" 'BEGIN { srand(n); for (i = 0; i < n; i++) {
        for (k = 0; k < 36; k++) printf "%.2f,", rand() / 2 + (k % 6 < 3) * (i % 2)
        print i % 2
    } }'
}
images 80 >train36.csv
images 20 >test36.csv
config conv.ini data.dataset=csv data.train_file=train36.csv data.test_file=test36.csv data.shape=6x6x1 \
    model.type=sequential 'model.layers=conv:4x3 relu maxpool:2 flatten linear:2' train.epochs=8 train.lr=0.1 \
    train.batch_size=20 run.dir=
ok run train conv.ini -q
same "$(awk '/^test accuracy/ { print ($3 > 0.9) }' "$folder/out")" 1
fails 78 'data.shape' \
    run train conv.ini -q --set data.shape=model

begin "sizes that do not fit are one line with the ones that would"
fails 78 'model.sizes' \
    run train own.ini --dir '' --set 'model.sizes=3 64 64 2'
fails 78 'data.train_images' run train own.ini --dir '' --set data.train_images=x
cut -d, -f2- test.csv >narrow.csv
fails 65 "narrow.csv: no column 'a', which the training table has" \
    run train own.ini --dir '' --set data.test_file=narrow.csv
run train own.ini --dir '' --set data.test_samples=1 --set data.dataset=synthetic-tokens --set data.train_file= \
    --set data.test_file= --set data.scale=none
code_is 78
err_has 'model.type = mlp gives 1 row of outputs a sample, and data.dataset = synthetic-tokens has 2 targets'
config big.ini data.dataset=synthetic data.shape=9999x9999x9999 model.type=sequential 'model.layers=avgpool linear:2'
fails 78 'data.shape' run explain big.ini

begin "a separator inside of quotes is none"
for end in '; cm' "$(printf '\tcm')"; do
    sed "1s/.*/\"a$end\",b,\"kind$end\"/" train.csv >quoted.csv
    ok run init quoted.csv quoted.csv --label "kind$end" -o quoted.ini
    grep -q '120 + 120 samples of 2 values, 3 classes' quoted.ini || complain "$(grep samples quoted.ini)"
    rm -f quoted.ini
done

begin "a model of texts reads whole numbers from a table, each of them a token"
awk -v OFS=, 'BEGIN { for (i = 0; i < 40; i++) print i % 9, (i * 7) % 8, i % 5, i % 2 }' >tokens.csv
config tokens.ini data.dataset=csv data.train_file=tokens.csv data.test_file=tokens.csv model.type=encoder \
    model.n_layer=1 model.n_head=2 model.n_embd=8 model.block_size=3 model.vocab_size=9 model.classes=2 train.epochs=1 \
    train.batch_size=20
ok run train tokens.ini -q --dir ''
fails 65 "model.vocab_size" \
    run train tokens.ini -q --dir '' --set model.vocab_size=8
sed '3s/^[0-9]*/.5/' tokens.csv >parts.csv
fails 65 "parts.csv: value 1 of sample 3 is 0.5: not one of the 9 tokens" \
    run train tokens.ini -q --dir '' --set data.train_file=parts.csv
fails 78 'data.mean' run train tokens.ini -q --dir '' --set data.mean=1
run train tokens.ini -q --dir '' --set data.dataset=mnist-sample --set data.train_file= --set data.test_file= --set model.block_size=784 --set model.classes=10
code_is 78
err_has 'model.type: encoder reads tokens, but a sample of mnist-sample has bytes as 0 to 1'
config pictures.ini data.dataset=synthetic model.type=gpt model.n_layer=1 model.n_head=2 model.n_embd=8 \
    model.block_size=8 model.vocab_size=9
fails 78 'model.type' \
    run train pictures.ini -q --dir ''

begin "files of another kind are named, with the way out"
mkdir cifar
set -- --dir '' --set 'model.sizes=3072 8 10' --set data.path=cifar --set data.dataset=cifar10
printf '\200\002}q' >cifar/data_batch_1
fails 65 "cifar/data_batch_1: of CIFAR-10's version for Python, a pickle" run train mnist-sample.ini "$@"
mv cifar/data_batch_1 cifar/data_batch_1.bin
fails 65 'cifar/data_batch_1.bin: is a Python pickle' run train mnist-sample.ini "$@"
rm cifar/data_batch_1.bin
head -c 30740 /dev/zero | tr '\0' '\7' >cifar/train.bin
fails 65 'data.dataset' \
    run train mnist-sample.ini "$@"
gzip -c cifar/train.bin >cifar/some.bin.gz
for name in train.bin some.bin.gz; do
    fails 65 "cifar/$name: CIFAR-100, records of 3074 bytes" \
        run train mnist-sample.ini "$@" --set data.train_file=cifar/$name --set data.test_file=cifar/$name
done
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n' >cifar/data_batch_1.bin
fails 65 "data_batch_1.bin: is a Git LFS pointer instead of the file; run \`git lfs pull\`" \
    run train mnist-sample.ini "$@"

begin "what is no config is named"
printf '{"stages": 2}\n' >a.json
printf '[data]\rdataset = mnist-sample\r' >returns.ini
for case in 'a.json:JSON, not a config' 'returns.ini:its lines end in returns alone'; do
    fails 64 "${case%%:*}: ${case#*:}" run train "${case%%:*}"
done
tr '\r' '\n' <returns.ini >newlines.ini
run explain newlines.ini
err_lacks returns

begin "MNIST's names with a dot are found"
mkdir dotted
for file in "$samples"/*ubyte.gz; do
    cp "$file" "dotted/$(basename "$file" | sed 's/-idx/.idx/')"
done
run eval mnist-sample.ini --checkpoint none --set data.dataset=mnist --set data.path=dotted
err_lacks 'no mnist data'
ok run train mnist-sample.ini -q --dir '' --max-steps 1 --set data.dataset=mnist --set data.path=dotted

begin "Kaggle's MNIST, whose label is first, is not trained with a pixel as the label"
pixels() {
    awk -v n="$1" -v last="$2" 'BEGIN { srand(n); for (i = 0; i < n; i++) {
        printf "%d", i % 10
        for (k = 0; k < 120; k++) printf ",%d", k == 119 ? last * (i % 2) : 255 * rand()
        print "" } }'
}
pixels 40 0 >black.csv
fails 65 '' run init black.csv black.csv
err_has 'every label, in the last column, is 0; column 1 has whole numbers to 9: if they are the labels, use data.label = first'
shows '120 values, 10 classes' run init black.csv black.csv --label first
{
    awk 'BEGIN { printf "label"; for (k = 0; k < 120; k++) printf ",pixel%d", k; print "" }'
    pixels 40 200
} >kaggle.csv
ok run init kaggle.csv kaggle.csv -o kaggle.ini
grep -q '^label = label ' kaggle.ini || complain "label: $(grep label kaggle.ini)"
fails 78 'data.label' run train kaggle.ini --set data.label=last --dir ''

begin "columns of different ranges: said by train and explain, scaled as init proposes"
awk 'BEGIN { srand(5); print "age,income,kind"; for (i = 0; i < 300; i++) { k = i % 2
    printf "%d,%d,%d\n", 20 + 20 * k + 25 * rand(), 5 + 387395 * rand(), k } }' >wide.csv
ok run init wide.csv wide.csv -o wide.ini
for command in explain 'train --epochs 1'; do
    # shellcheck disable=SC2086
    ok run $command wide.ini --set run.dir= --set data.scale=none
    err_has "warning: $PWD/wide.csv: 2 of 2 columns are large: value 2 ('income') goes from" 'data.scale = standard'
done
ok run train wide.ini --dir '' --epochs 20
err_lacks large
same "$(awk '/^test accuracy/ { print ($3 > 0.8) }' out)" 1

begin "an index that counts the rows is left out, and said where it is not"
awk 'BEGIN { for (i = 0; i < 20; i++) print i "," i % 3 - 1 ".5," i % 2 }' >index.csv
ok run init index.csv index.csv -o index.ini
grep -q '^drop = 1$' index.ini || complain "drop: $(cat index.ini)"
sed -i '/^drop/d' index.ini
ok run train index.ini --dir '' --epochs 1 --set 'model.sizes=2 8 2'
err_has 'column 1 counts the rows from 0, as an index does, and is an input here'

begin "explain and plan need no files: what the config does not say is asked for by its key"
for shipped in "$samples"/../../configs/*.ini; do
    run explain "$shipped"
    [ "$code" -ne 0 ] || continue
    code_is 66
    err_has 'set data.train_samples, data.test_samples, model.vocab_size, model.classes to look at'
    for command in explain plan; do
        ok run $command "$shipped" --set data.train_samples=999 --set data.test_samples=77 --set model.vocab_size=99 \
            --set model.classes=3
        [ $command = plan ] || out_has 'data: 999 training samples in 32 steps'
    done
done
fails 66 '' run train own.ini --set data.train_file=none.csv --set data.train_samples=999
err_lacks 'set data'

finish
