#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What goes wrong around --launch mpirun: results that nobody takes, an mpirun that starts no rank:
# launch.sh PPCLI
# shellcheck disable=SC3045,SC2016,SC2317,SC2034 # ulimit -n: all shells have it; what `within` and other shells expand
PPCLI=$(realpath "$1")
export PPCLI
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"
cd "$folder" || exit 1
command -v mpirun >/dev/null 2>&1 || { echo "1..0 # SKIP no mpirun here (install openmpi-bin)"; exit 0; }

config net.ini data.dataset=synthetic data.train_samples=64 data.test_samples=16 \
    'model.sizes=12 8*3 5' pipeline.stages=2 train.batch_size=32 train.max_steps=2 run.dir=
launch() { # launch WORD...: a run under env WORD..., its results in `out`
    last="env $* ppcli train --launch mpirun"
    code=0
    timeout 60 env "$@" "$PPCLI" train net.ini -q --launch mpirun >out 2>err </dev/null || code=$?
}
no_rank() { # exit 69 and one line of ours
    code_is 69
    err_has "ppcli: error: mpirun ended with code $1"
    err_has " and has not started a rank"
    same "$(grep -c '^ppcli: error: ' err)" 1
}

begin "the results arrive"
launch A=b
code_is 0
out_has 'weights_sha256'

begin "results that do not fit, and a closed standard output, are 74 as without mpirun"
for where in '>/dev/full' '>&-'; do
    code=0
    last="ppcli train --launch mpirun $where"
    eval "\"$PPCLI\" train net.ini -q --launch mpirun $where 2>err </dev/null" || code=$?
    code_is 74
    err_has 'ppcli: error: standard output'
done

begin "an mpirun that cannot start its ranks is 69 with one line"
launch -i
no_rank ''
launch TMPDIR=/proc
code_is 69
err_has 'ppcli: error: mpirun needs 0.2 MiB for its session folder in /proc'
launch sh -c 'ulimit -n 16; exec "$@"' sh env
code_is 69
err_has 'ppcli: error: mpirun needs 34 open files for 2 ranks, but 16 are allowed'
if [ "$(id -u)" -eq 0 ] && command -v setpriv bash >/dev/null 2>&1; then # root has no such limit
    chmod 755 "$folder"
    # shellcheck disable=SC2016
    launch setpriv --reuid 54321 --regid 54321 --clear-groups bash -c 'ulimit -u 12; exec "$@"' bash env
    code_is 69
    err_has 'ppcli: error: mpirun and 2 ranks need a limit of '
fi

begin "what mpirun says is the cause where no rank starts, and is not shown in a good run"
real=$(command -v mpirun)
mkdir talks
# shellcheck disable=SC2016 # it is the script that expands it
printf '#!/bin/sh\nprintf "[%%s:12] setpgid: odd\\n\\n%%s\\nThere are not enough slots\\nfor 2 ranks.\\n%%s\\n" "$(hostname)" "$LINE" "$LINE" >&2\n[ -n "$GOOD" ] || exit 1\nexec %s "$@"\n' "$real" >talks/mpirun
chmod +x talks/mpirun
line=------------------------------------------------------------------
launch PATH="$folder/talks:$PATH" LINE=$line GOOD=
no_rank 1
err_has '(it says: There are not enough slots for 2 ranks)'
same "$(wc -l <err)" 1
launch PATH="$folder/talks:$PATH" LINE=$line GOOD=1
code_is 0
same "$(cat err)" ''
launch PATH="$folder/talks:$PATH" LINE=$line GOOD=1 sh -c 'exec "$@" -v' sh
code_is 0
err_has 'setpgid'

begin "an mpirun that ends without having started a rank is no success"
mkdir bin
# shellcheck disable=SC2016 # it is the script that expands it
printf '#!/bin/sh\nexit "$CODE"\n' >bin/mpirun
chmod +x bin/mpirun
for c in 0 1 115 243; do
    launch PATH="$folder/bin:$PATH" CODE=$c
    no_rank $c
done

begin "a launcher that puts the first bytes of a rank into standard error has started it all the same"
mkdir -p odd
cat >odd/mpirun <<'SH'
#!/bin/sh
OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 "$PPCLI" version >&2
SH
chmod +x odd/mpirun
code=0
PATH="$folder/odd:$PATH" "$PPCLI" train net.ini --dir odd-run --launch mpirun >out 2>err </dev/null || code=$?
last='the odd mpirun'
code_is 0
! grep -q "$(printf '\006')" err || complain "the mark is in: $(cat -v err)"
rm -rf odd odd-run

begin "--retries starts again what was lost, as often as it says, and the weights are the same"
real=$(command -v mpirun)
# shellcheck disable=SC2016 # it is the script that expands it
printf '#!/bin/sh\necho >>calls\n[ "$(wc -l <calls)" -gt "$LOSSES" ] || kill -9 $$\nexec %s "$@"\n' "$real" >bin/mpirun
tries() { # tries LOSSES: with two retries
    rm -rf calls run
    last="ppcli train --launch mpirun --retries 2, $1 losses"
    code=0
    timeout 100 env PATH="$folder/bin:$PATH" LOSSES="$1" "$PPCLI" train net.ini -q --launch mpirun --dir run \
        --retries 2 >out 2>err </dev/null || code=$?
}
tries 1
code_is 0
same "$(wc -l <calls)" 2
err_has 'warning: try 2 of 3 after 1 s, from the beginning, 2 stages: the weights will be those of an undisturbed run'
same "$(grep weights_sha256 out)" "$("$PPCLI" train net.ini -q | grep weights_sha256)"
tries 9
code_is 69
same "$(wc -l <calls)" 3
same "$(grep -c '^ppcli: error: ' err)" 1
printf '#!/bin/sh\necho >>calls\nexec %s "$@" --set train.lr=-1\n' "$real" >bin/mpirun
tries 0
code_is 78
same "$(wc -l <calls)" 1

begin "a first try that is lost before it has the run folder leaves another run there alone"
# shellcheck disable=SC2016 # it is the script that expands it
printf '#!/bin/sh\necho >>calls\n[ "$(wc -l <calls)" -gt 1 ] || kill -9 $$\nexec %s "$@"\n' "$real" >bin/mpirun
run train net.ini -q --dir old --set train.lr=0.5
cp -r old copy
retried() { # retried OPTION...: into `old`, with one loss
    rm -f calls
    last="ppcli train --launch mpirun --retries 2 --dir old $*"
    code=0
    timeout 100 env PATH="$folder/bin:$PATH" "$PPCLI" train net.ini -q --launch mpirun --dir old \
        --retries 2 "$@" >out 2>err </dev/null || code=$?
}
retried
code_is 78
err_has 'old is not empty: name another with --dir'
retried --resume copy/checkpoints/step-00000002 --set train.max_steps=3 --allow train.lr
code_is 78
err_has 'old is not empty: name another with --dir'
same "$(cat old/checkpoints/*/MANIFEST)" "$(cat copy/checkpoints/*/MANIFEST)"
retried --overwrite
code_is 0
same "$(wc -l <calls)" 2
same "$(grep weights_sha256 out)" "$("$PPCLI" train net.ini -q | grep weights_sha256)"
rm -rf old copy
run train net.ini -q --dir run --retries 1
code_is 78
err_has 'run.retries: threads of one process end together; use --launch mpirun or --hosts'

begin "a later try has the config of the first, also when the file was edited or removed since"
# The first try makes one step, and is lost.
cat >bin/mpirun <<END
#!/bin/sh
[ -e tried ] && exec $real "\$@"
touch tried
$real "\$@" --max-steps 1
sh -c "\$CHANGE"
kill -9 \$\$
END
cp net.ini kept.ini
for change in 'sed -i s/max_steps.*/max_steps=1/ net.ini' 'sed -i s/32/16/ net.ini' 'rm net.ini' \
    'mkdir moved; mv net.ini moved'; do
    rm -rf tried moved
    cp kept.ini net.ini
    last="ppcli train --retries 1, $change"
    code=0
    timeout 100 env PATH="$folder/bin:$PATH" CHANGE="$change" "$PPCLI" train net.ini -q --launch mpirun --dir run \
        --overwrite --retries 1 >out 2>err </dev/null || code=$?
    code_is 0
    cp kept.ini net.ini
    same "$(sha run/summary.json)" "$("$PPCLI" train net.ini -q --set train.max_steps=2 | awk '/weights_sha256/ { print $2 }')"
done

begin "a full disk is not tried again, and a run that is complete says so last"
# shellcheck disable=SC2016 # it is the script that expands it
printf '#!/bin/sh\necho >>calls\nexec %s "$@"\n' "$real" >bin/mpirun
rm -rf calls run full
mkdir full
code=0
last='ppcli train --retries 2, on a full disk'
timeout 100 env PATH="$folder/bin:$PATH" unshare -m sh -c 'mount -t tmpfs -o size=64k none full && exec "$@"' sh \
    "$PPCLI" train net.ini -q --launch mpirun --dir full/run --retries 2 >out 2>err </dev/null || code=$?
if [ -s err ] && grep -q '^unshare: \|^mount: ' err; then
    skip 'no mounts here (needs root)'
else
    code_is 74
    same "$(wc -l <calls)" 1
    same "$(grep -c 'ppcli: error: the run is complete, but its last checkpoint was not saved' err)" 1
    same "$(tail -n 1 err | cut -c 1-37)" 'ppcli: error: the run is complete, bu'
fi

begin "another error of a disk is tried again"
# shellcheck disable=SC2016 # it is the script that expands it
printf '#!/bin/sh\necho >>calls\n[ "$(wc -l <calls)" = 1 ] && printf "\006ppcli\006" && exit 74\nexec %s "$@"\n' "$real" \
    >bin/mpirun
tries 1
code_is 0
same "$(wc -l <calls)" 2

begin "what a try left behind does not speak for the next one"
# Somebody holds what the first mpirun wrote to, and says there that a rank has begun when the second runs.
cat >bin/mpirun <<'END'
#!/bin/sh
echo >>calls
[ "$(wc -l <calls)" = 1 ] && { echo $$ >first; until [ -s held ]; do sleep 0.05; done; kill -9 $$; }
echo >second
until [ -s spoken ]; do sleep 0.05; done
sleep 0.2
exit 76
END
rm -f calls first held second spoken
{
    until [ -s first ]; do sleep 0.05; done
    exec 3>"/proc/$(cat first)/fd/1"
    echo yes >held
    until [ -e second ]; do sleep 0.05; done
    printf '\006ppcli\006' >&3
    echo yes >spoken
    sleep 1
} &
last='two tries'
code=0
timeout 100 env PATH="$folder/bin:$PATH" "$PPCLI" train net.ini -q --launch mpirun --dir run --overwrite --retries 1 \
    >out 2>err </dev/null || code=$?
wait
no_rank 76

begin "the address of another run's listener does not reach ranks that have none"
# shellcheck disable=SC2016 # it is the script that expands it
printf '#!/bin/sh\necho "${PPCLI_PULSE-none}" >seen\nexit 76\n' >bin/mpirun
launch PATH="$folder/bin:$PATH" PPCLI_PULSE=1:1:127.0.0.1
same "$(cat seen)" none

# start_long DIR [WORD...]: a long run in the background, as the child of a script that has become ppcli
start_long() {
    dir=$1
    shift
    rm -rf "$dir" "$dir.pid" "$dir.other"
    # A group of its own, as a shell with a terminal makes it: Ctrl-Z has no effect on an orphaned one.
    python3 -c 'import os, sys
os.setpgid(0, 0)
os.execvp("sh", ["sh", "-c"] + sys.argv[1:])' 'echo $$ >"$1.pid"; sleep 300 & echo $! >"$1.other"; d=$1; shift
        exec "$PPCLI" train net.ini -q --launch mpirun --dir "$d" --set train.max_steps=0 --epochs 1000000 "$@"' \
        sh "$dir" "$@" >"$dir.out" 2>"$dir.err" </dev/null &
    within "[ -s $dir.pid ] && ranks_of $dir && grep -q . $dir/metrics.jsonl 2>/dev/null" ||
        complain "it never began: $(cat "$dir.err")"
}
ranks_of() { # ranks_of DIR: sets parent, mpirun, ranks; false before there are two
    parent=$(cat "$1.pid")
    mpirun=$(pgrep -x -P "$parent" mpirun) && ranks=$(pgrep -P "$mpirun") && [ "$(echo "$ranks" | wc -l)" = 2 ]
}
states() { for p in $parent $ranks; do sed 's/.*) \(.\).*/\1/' "/proc/$p/stat" | tr -d '\n'; done; }
long_ends() { # long_ends DIR
    code=0
    wait $! || code=$?
    cp "$1.err" err
    last="the run in $1"
}

begin "Ctrl-Z stops the ranks as well, and they continue with their parent, also after run.hang_timeout"
start_long paused --set run.hang_timeout=1s
kill -TSTP "$parent"
within '[ "$(states)" = TTT ]' || complain "not stopped: $(states)"
sleep 2
lines=$(wc -l <paused/metrics.jsonl)
kill -CONT "$parent"
within '[ "$(wc -l <paused/metrics.jsonl)" -gt "$lines" ]' || complain "does not continue: $(states)"
kill -TERM "$parent"
kill "$(cat paused.other)"
long_ends paused
code_is 75
err_has 'checkpoint saved'

begin "a lost rank does not end what the script that became ppcli has started"
start_long robbed
kill -KILL "${ranks%%[!0-9]*}"
long_ends robbed
code_is 76
kill "$(cat robbed.other)" || complain 'it has been ended'

begin "where the config was found is told once"
code=0
last='ppcli train mnist-sample.ini --launch mpirun'
"$PPCLI" train mnist-sample.ini --max-steps 1 --stages 2 --dir '' --launch mpirun >out 2>err || code=$?
code_is 0
same "$(grep -c '^config: ' err)" 1
finish
