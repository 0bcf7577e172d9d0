#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ppcli env: the build, the machine and its devices, and what is missing.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

json() { python3 -c "import json, sys; e = json.load(open('$folder/out')); print($1)"; }

begin "env names the build, the machine and every backend"
ok run env
same "$(cat "$folder/err")" ''
out_has "$("$PPCLI" version | head -n 1), commit "
for word in topology CBLAS MPI zlib compiler host processor cores caches memory; do
    grep -q "^  $word  *[^ ]" "$folder/out" || complain "no value for '$word'"
done
for backend in $("$PPCLI" keys run.backend --json | tr ',' '\n' | sed -n 's/^ *"\([a-z]*\)"$/\1/p'); do
    [ "$backend" = auto ] || grep -q "^  $backend  *[^ ]" "$folder/out" || complain "no backend $backend"
done
for transport in $("$PPCLI" keys run.transport --json | tr ',' '\n' | sed -n 's/^ *"\([a-z]*\)"$/\1/p'); do
    [ "$transport" = auto ] || grep -q "^  $transport  *[^ ]" "$folder/out" || complain "no transport $transport"
done

begin "it tells the cores that it may use, and all there are"
core=$(taskset -pc $$ 2>/dev/null | sed 's/.*: *\([0-9]*\).*/\1/')
if [ -z "$core" ]; then
    skip 'no taskset here'
else
    taskset -c "$core" "$PPCLI" env >"$folder/out" 2>"$folder/err"
    out_has "1 of $(getconf _NPROCESSORS_ONLN) ($core)"
fi

begin "it tells what limits the cores: a mask"
if [ -z "$core" ] || [ "$(getconf _NPROCESSORS_ONLN)" = 1 ]; then
    skip 'no taskset here, or one processor'
else
    taskset -c "$core" "$PPCLI" env >"$folder/out" 2>"$folder/err"
    out_has 'limited by     the CPU mask of its process'
    config "$folder/net.ini" data.dataset=mnist-sample 'model.sizes=784 400 10' train.max_steps=200
    taskset -c "$core" "$PPCLI" train "$folder/net.ini" --stages 2 --dir '' -q >"$folder/out" 2>"$folder/err"
    if [ -r /proc/self/schedstat ]; then
        out_has 'few cores        2 ranks share 1 core (limit: the CPU mask of its process'
    fi
    out_lacks 'other programs'
fi

begin "it tells what limits the cores: a quota of a control group"
mkdir -p "$folder/made/proc/self" "$folder/made/sys/fs/cgroup/cpu/job"
echo '3:cpu,cpuacct:/job/step' >"$folder/made/proc/self/cgroup"
echo 100000 >"$folder/made/sys/fs/cgroup/cpu/job/cpu.cfs_period_us"
echo 90000 >"$folder/made/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us"
PPCLI_SYSTEM_ROOT="$folder/made" "$PPCLI" env >"$folder/out" 2>"$folder/err"
out_has "cores          1 of $(getconf _NPROCESSORS_ONLN) ("
out_has "a quota of 0.9 CPUs ($folder/made/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us)"
config "$folder/net.ini" data.dataset=mnist-sample 'model.sizes=784 40 10' train.max_steps=3
PPCLI_SYSTEM_ROOT="$folder/made" "$PPCLI" tune "$folder/net.ini" --stages 2 >"$folder/out" 2>"$folder/err"
out_has ' on 1 core' '2 ranks on 1 core take turns'

begin "a run whose cores others have is not pinned, and says so once"
if command -v python3 >/dev/null 2>&1; then
    cat >"$folder/hold.py" <<'END'
import fcntl, os, subprocess, sys
folder = os.environ['XDG_RUNTIME_DIR'] + '/ppcli'
os.makedirs(folder, 0o700, exist_ok=True)
held = [open(f'{folder}/core-{c}', 'w') for c in sorted(os.sched_getaffinity(0) | {0})]
for f in held:
    fcntl.flock(f, fcntl.LOCK_EX)
sys.exit(subprocess.run(sys.argv[1:]).returncode)
END
    config "$folder/net.ini" data.dataset=mnist-sample 'model.sizes=784 40 10' train.max_steps=3
    ok run train "$folder/net.ini" --dir ''
    err_lacks 'another ppcli run holds the cores'
    sum=$(grep weights_sha256 "$folder/out")
    PPCLI_ONE=$PPCLI
    printf '#!/bin/sh\nexec python3 "%s" "%s" "$@"\n' "$folder/hold.py" "$PPCLI_ONE" >"$folder/held"
    chmod +x "$folder/held"
    PPCLI=$folder/held
    ok run train "$folder/net.ini" --dir ''
    same "$(grep -c 'another ppcli run holds the cores' "$folder/err")" 1
    out_has "$sum"
    ok run train "$folder/net.ini" --dir '' --set run.pin=off
    err_lacks 'another ppcli run holds the cores'
    PPCLI=$PPCLI_ONE
else
    skip 'no python3 here'
fi

begin "where there is no GPU it says so, and why"
if [ -e /dev/nvidia0 ] || [ -e /dev/dxg ]; then
    skip 'there is a GPU'
else
    CUDA_VISIBLE_DEVICES='' run env
    code_is 0
    grep -q '^  cuda  *no: .' "$folder/out" || complain "says nothing of cuda: $(cat "$folder/out")"
    # A build with the toolkit names its libraries: those it was built with, and those it would load.
    ! grep -q '^cuda$' "$folder/out" || same "$(grep -c '^  NCCL  *.' "$folder/out")" 2
fi

begin "as JSON it says the same"
ok run env --format json
if command -v python3 >/dev/null 2>&1; then
    same "$(json 'e["schema"]')" 1
    same "$(json 'e["machine"]["cores_there"]')" "$(getconf _NPROCESSORS_ONLN)"
    same "$(json 'e["machine"]["memory_bytes"] // 1024')" "$(sed -n 's/MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo)"
    same "$(json '[b["runs"] for b in e["backends"] if b["name"] == "cpu"]')" '[True]'
    same "$(json '[t["runs"] for t in e["transports"] if t["name"] == "threads"]')" '[True]'
    same "$(json 'e["build"]["zlib"]')" "$("$PPCLI" version | sed -n 's/^zlib: //p')"
    same "$(json 'all(len(b["devices"]) > 0 for b in e["backends"] if "devices" in b and b["runs"])')" True
else
    skip 'no python3 here'
fi

begin "explain says what it does not count of a GPU that is not here"
run env
grep -q '^  cuda  *no' "$folder/out" || skip 'a GPU'
ok run explain "$(dirname "$0")/../../configs/resnet18-cifar10.ini" --backend cuda
[ -n "$skipped" ] || err_has 'warning: run.backend = cuda cannot run here, so what only a device holds is not counted'
run explain "$(dirname "$0")/../../configs/resnet18-cifar10.ini" --backend cpu
err_lacks 'warning'

begin "another format, and words, are refused"
fails 64 "'xml'" run env --format xml
fails 64 '' run env now

finish
