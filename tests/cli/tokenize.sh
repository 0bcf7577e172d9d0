#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tokenize, and subwords from a text to a generated one: the tour of docs/do/transformers.md.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

gunzip -c "$PPCLI_SOURCE_DIR/data/shakespeare-sample/input.txt.gz" >"$folder/book.txt"
small="model.type=gpt model.n_layer=1 model.n_head=2 model.n_embd=32 model.block_size=16"
steps="train.batch_size=4 train.max_steps=12 train.eval_interval=6 train.lr=0.003"
bytes_of() { wc -c <"$1" | tr -d ' '; }

run tokenize "$folder/book.txt" -o "$folder/data" --train 2000
case $(cat "$folder/err") in *'built without PCRE2'*)
    begin "without PCRE2 one line says what is missing"
    code_is 69
    err_has 'libpcre2-dev'
    finish
    ;;
esac

begin "a vocabulary of one's own, and the tokens of the text in two files"
code_is 0
out_has "$folder/data/train.bin: " 'tokens of 2 bytes' 'tokenizer.json: 2000 different ones'
all=$(($(bytes_of "$folder/data/train.bin") + $(bytes_of "$folder/data/val.bin")))
[ $all -gt 60000 ] || complain "only $all bytes of tokens"
[ $all -lt 160000 ] || complain "$all bytes of tokens"

begin "the same tokens again, from a gzip file, in two texts, and with the tokenizer that lies there"
cat "$folder/data/train.bin" "$folder/data/val.bin" >"$folder/first"
gzip -c "$folder/book.txt" >"$folder/book.gz"
ok run tokenize "$folder/book.gz" -o "$folder/again" --tokenizer "$folder/data" --validation 0
[ ! -e "$folder/again/val.bin" ] || complain 'val.bin with --validation 0'
cmp "$folder/first" "$folder/again/train.bin" || complain 'other tokens of a gzip file'
cmp "$folder/data/tokenizer.json" "$folder/again/tokenizer.json" || complain 'another tokenizer'
ok run tokenize "$folder/book.txt" -o "$folder/data"
cat "$folder/data/train.bin" "$folder/data/val.bin" | cmp - "$folder/first" || complain 'other tokens'

begin "words that cannot be meant are refused, and a tokenizer is never replaced"
fails 64 '--tokenizer' run tokenize "$folder/book.txt"
fails 64 '--train' run tokenize "$folder/book.txt" -o "$folder/x" --train 100
fails 64 '--train' run tokenize "$folder/book.txt" -o "$folder/empty"
fails 66 'has no tokenizer.json' run tokenize "$folder/book.txt" -o "$folder" --tokenizer "$folder"
fails 66 'none.txt' run tokenize "$folder/none.txt" -o "$folder/data"
fails 78 'has another tokenizer; name a new folder' run tokenize "$folder/book.txt" -o "$folder/data" --train 300
printf 'caf\351' >"$folder/latin"
fails 65 'begins no character of UTF-8' run tokenize "$folder/latin" -o "$folder/data"
cat "$folder/data/train.bin" "$folder/data/val.bin" | cmp - "$folder/first" || complain 'lost tokens'

begin "more than 65,536 tokens have 4 bytes each"
mkdir "$folder/wide"
sed 's/"id":1999,"content":"<|endoftext|>"/"id":70000,"content":"<|endoftext|>"/; s/"<|endoftext|>":1999/"<|endoftext|>":70000/' \
    "$folder/data/tokenizer.json" >"$folder/wide/tokenizer.json"
printf 'a<|endoftext|>b' >"$folder/mark.txt"
shows 'tokens of 4 bytes' run tokenize "$folder/mark.txt" -o "$folder/wide" --validation 0
same "$(od -An -tu4 "$folder/wide/train.bin" | tr -s ' ')" " 64 70000 65"

begin "from a text file to words, with a vocabulary of its own"
# shellcheck disable=SC2086 # words
config "$folder/book.ini" data.dataset=tokens "data.path=$folder/data" $small $steps
ok run train "$folder/book.ini" --dir "$folder/run" -q
mv "$folder/data" "$folder/gone" # the checkpoint knows its tokenizer
ok run generate "$folder/run" --prompt 'The king ' --tokens 30
mv "$folder/gone" "$folder/data"
case $(cat "$folder/out") in 'The king '*) ;; *) complain "no prompt in $(cat "$folder/out")" ;; esac
iconv -f UTF-8 -t UTF-8 "$folder/out" >/dev/null || complain 'half characters'
ok run generate "$folder/run" --prompt 'The king ' --tokens 200 --stop e
case $(tail -c +10 "$folder/out") in *e*) complain "--stop was passed: $(cat "$folder/out")" ;; esac
fails 64 '--stop' run generate "$folder/run" --prompt a --stop ''

begin "a prompt may have more tokens than bytes"
mkdir "$folder/two" && cat >"$folder/two/tokenizer.json" <<'END'
{"normalizer":{"type":"Replace","pattern":{"String":"z"},"content":"aaaa"},
 "model":{"type":"BPE","vocab":{"a":0,"b":1,"y":2},"merges":[]}}
END
printf 'abyzabyzabyzabyzabyzabyzabyz%.0s' 1 2 3 4 5 6 7 8 9 >"$folder/abc.txt"
ok run tokenize "$folder/abc.txt" -o "$folder/abc" --tokenizer "$folder/two"
# shellcheck disable=SC2086 # words
config "$folder/abc.ini" data.dataset=tokens "data.path=$folder/abc" $small $steps
ok run train "$folder/abc.ini" --dir "$folder/abc-run" -q
ok run generate "$folder/abc-run" --prompt zzb --tokens 1
case $(cat "$folder/out") in aaaaaaaab*) ;; *) complain "the prompt became $(cat "$folder/out")" ;; esac
err_has '9 tokens read'

begin "the config that the page on transformers prints trains, and ends with words"
awk '/^`book.ini`/ { on = 1 } on && /^With a folder/ { exit } on && sub(/^    /, "")' \
    "$PPCLI_SOURCE_DIR/docs/do/transformers.md" >"$folder/page.ini"
(cd "$folder" && ok run train page.ini --dir page -q --max-steps 2 && ok run generate page --prompt 'The ' --tokens 5 &&
    printf '%s' "$wrong" >wrong)
same "$(cat "$folder/wrong")" ''

begin "export writes the tokenizer, and the folder speaks text"
shows 'tokenizer.json of step 12' run export "$folder/run" "$folder/hf"
cmp "$folder/data/tokenizer.json" "$folder/hf/tokenizer.json" || complain 'another tokenizer'
grep -q '"eos_token": "<|endoftext|>"' "$folder/hf/tokenizer_config.json" || complain 'no eos_token'
# shellcheck disable=SC2086
config "$folder/hf.ini" data.dataset=text "data.train_file=$folder/book.txt" data.tokens=bpe \
    "model.from=$folder/hf" "train.init=$folder/hf" $steps
ok run train "$folder/hf.ini" --dir "$folder/run2" -q
ok run generate "$folder/hf.ini" --checkpoint "$folder/hf" --prompt 'The king ' --tokens 5
case $(cat "$folder/out") in 'The king '*) ;; *) complain "no prompt in $(cat "$folder/out")" ;; esac

# The run's model with its tokenizer cut in another way: $1 in place of its pre_tokenizer, $2 of ignore_merges.
gguf_of() {
    rm -rf "$folder/cut" "$folder/gguf"
    mkdir "$folder/cut"
    sed "s#\"pre_tokenizer\": *{[^}]*}#\"pre_tokenizer\":$1#; s#\"ignore_merges\": *false#\"ignore_merges\":$2#" \
        "$folder/data/tokenizer.json" >"$folder/cut/tokenizer.json"
    run export "$folder/run" "$folder/gguf" --format gguf --tokenizer "$folder/cut"
}
# "tokenizer.ggml.pre", its type and length, and its text.
pre_is() {
    code_is 0
    same "$(tr '\000-\037' ' ' <"$folder/gguf/model.gguf" | grep -ao 'ggml.pre  *[a-z0-9-]*' | tr -s ' ')" "ggml.pre $1"
}
bytes='{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}'
words='{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}'
gpt4='(?i:'"'s|'t|'re|'ve|'m|'ll|'d"')|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+'
split() { # [PATTERN]
    printf '{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"%s"},' "$1"
    printf '"behavior":"Isolated","invert":false},%s]}' "$bytes"
}

begin "GGUF names the pre-tokenizer of llama.cpp that cuts texts in the same way"
gguf_of "$words" false && pre_is gpt-2
gguf_of "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true},$words]}" false &&
    pre_is starcoder
gguf_of "$(split "$gpt4")" true && pre_is llama-bpe
gguf_of "$(split "$gpt4")" false && pre_is dbrx
gguf_of "$(split "$(printf '%s' "$gpt4" | sed 's/{1,3}//')")" false && pre_is qwen2

begin "and where there is none the export is refused and names the steps"
for cut in "$bytes" "$(echo "$words" | sed 's/"add_prefix_space":false/"add_prefix_space":true/')" \
    "$(split '\\\\p{N}{1,3}')" "$(split "$(printf '%s' "$gpt4" | sed 's/{1,3}/{1,2}/')")" \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":false},$words]}"; do
    gguf_of "$cut" false
    code_is 78
    err_has 'llama.cpp has no name for what the tokenizer does before its merges ('
done
gguf_of "$words" true
code_is 78
err_has 'ignore_merges'

begin "its token for the unknown is of type UNKNOWN, 2"
gguf_type() { # of token $1
    at=$(grep -abo tokenizer.ggml.token_type "$folder/gguf/model.gguf" | cut -d: -f1)
    od -An -tu4 -j $((at + 25 + 16 + 4 * $1)) -N 4 "$folder/gguf/model.gguf" | tr -d ' '
}
sed 's/"unk_token": *null/"unk_token":"!"/' "$folder/data/tokenizer.json" >"$folder/cut/tokenizer.json"
rm -rf "$folder/gguf"
ok run export "$folder/run" "$folder/gguf" --format gguf --tokenizer "$folder/cut"
same "$(gguf_type 0) $(gguf_type 1) $(gguf_type 1999)" '2 1 3'

begin "characters and bytes for a model of subwords are refused, whatever their count"
for tokens in chars bytes; do
    fails 78 'data.tokens' run train "$folder/hf.ini" --set data.tokens=$tokens --dir "$folder/no" --overwrite
done
# shellcheck disable=SC2086
config "$folder/own.ini" data.dataset=text "data.train_file=$folder/book.txt" model.vocab_size=2000 \
    "train.init=$folder/hf" $small $steps
fails 65 'data.tokens' run train "$folder/own.ini" --dir "$folder/no" --overwrite
fails 65 'data.tokens' run train "$folder/own.ini" --dir "$folder/no" --overwrite --set data.tokens=bytes

begin "another vocabulary than that of the checkpoint or the files is refused"
ok run tokenize "$folder/book.txt" -o "$folder/other" --train 1900
fails 78 'but with the tokenizer in' run train "$folder/book.ini" --set "data.tokenizer=$folder/other" \
    --dir "$folder/no" --overwrite
fails 65 'tokens would have other numbers' run train "$folder/own.ini" --dir "$folder/no" --overwrite --set data.tokens=bpe \
    --set "data.tokenizer=$folder/other"
fails 78 'data.tokenizer' run train "$folder/own.ini" --set data.tokens=bpe --dir "$folder/no" --overwrite

begin "fewer than two tokens are refused, and a few all train"
printf a >"$folder/one.txt"
fails 65 "one.txt: 1 token in all, and training needs at least 2" \
    run tokenize "$folder/one.txt" -o "$folder/tiny" --tokenizer "$folder/data"
[ ! -e "$folder/tiny/train.bin" ] || complain 'a file without tokens'
printf '\001\002' >"$folder/two.txt"
shows 'train.bin: 2 tokens' run tokenize "$folder/two.txt" -o "$folder/tiny" --tokenizer "$folder/data"

begin "a signal leaves no half of a file, and leftovers of killed processes are removed later"
for _ in $(seq 1 200); do cat "$folder/book.txt"; done >"$folder/long.txt"
for signal in TERM HUP; do # a shell starts its jobs without INT
    mkdir -p "$folder/cut"
    (exec "$PPCLI" tokenize "$folder/long.txt" "$folder/long.txt" -o "$folder/cut" --tokenizer "$folder/data") \
        >"$folder/out" 2>"$folder/err" &
    child=$!
    within "ls $folder/cut/*.tmp-* >/dev/null 2>&1"
    kill -$signal $child
    wait $child
    same "$(find "$folder/cut" -name '*.tmp-*' | wc -l)" 0
    [ ! -e "$folder/cut/train.bin" ] || skip 'it was too fast'
    rm -rf "$folder/cut"
done
mkdir "$folder/cut"
: >"$folder/cut/train.bin.tmp-999999999"
touch -d '2 hours ago' "$folder/cut/train.bin.tmp-999999999"
: >"$folder/cut/train.bin.tmp-$$"
touch -d '2 hours ago' "$folder/cut/train.bin.tmp-$$"
ok run tokenize "$folder/two.txt" -o "$folder/cut" --tokenizer "$folder/data"
same "$(ls "$folder/cut")" "tokenizer.json
train.bin
train.bin.tmp-$$"

begin "a tokenizer whose steps blow a text up is refused before they take the memory"
mkdir "$folder/bomb"
awk 'BEGIN { for (i = 0; i < 1000; i++) printf "a" }' >"$folder/thousand" </dev/null
step='{"type":"Replace","pattern":{"String":"a"},"content":"'$(cat "$folder/thousand")'"}'
sed 's/"normalizer": *null/"normalizer":{"type":"Sequence","normalizers":['"$step,$step,$step"']}/' \
    "$folder/data/tokenizer.json" >"$folder/bomb/tokenizer.json"
if grep -q 'Sequence' "$folder/bomb/tokenizer.json"; then
    fails 65 'more than 64 times as many' run tokenize "$folder/book.txt" -o "$folder/blown" --tokenizer "$folder/bomb"
    err_has 'book.txt: the normalizer of this tokenizer makes'
else
    complain "no normalizer in tokenizer.json: $(head -c 300 "$folder/data/tokenizer.json")"
fi

begin "characters are exported as a tokenizer, too"
# shellcheck disable=SC2086
config "$folder/chars.ini" data.dataset=text "data.train_file=$folder/book.txt" $small $steps
ok run train "$folder/chars.ini" --dir "$folder/run3" -q
ok run export "$folder/run3" "$folder/hf3"
ok run tokenize "$folder/book.txt" -o "$folder/chars" --tokenizer "$folder/hf3" --validation 0
same "$(bytes_of "$folder/chars/train.bin")" "$((2 * $(wc -m <"$folder/book.txt")))"

finish
