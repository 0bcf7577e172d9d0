#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions that `ok` and `fails` call
# Hosts that are reached by a real ssh, each with its own sshd: ssh.sh PPCLI
PPCLI=$(realpath "$1")
export PPCLI
here=$(realpath "$(dirname "$0")")
# shellcheck source=tests/cli/lib.sh
. "$here/../cli/lib.sh"
unset PPCLI_HOST_AGENT
cd "$folder" || exit 1
why=$("$here/machines.sh" 1 true) || { echo "1..0 # SKIP ${why#skipped: }"; exit 0; }
sshd=$(command -v sshd || ls /usr/sbin/sshd 2>/dev/null)
if [ -z "$sshd" ] || ! command -v ssh >/dev/null 2>&1; then
    echo "1..0 # SKIP no ssh and sshd here (install openssh-client and openssh-server)"
    exit 0
fi
config net.ini data.dataset=synthetic data.train_samples=192 data.test_samples=16 'model.sizes=12 16*5 5' \
    train.batch_size=48 train.epochs=1 run.dir=
for key in of_host of_user of_stranger; do ssh-keygen -q -t ed25519 -N '' -f "$key"; done
cp of_user.pub authorized
cat >ssh_config <<END
Host *
    UserKnownHostsFile $folder/known
    StrictHostKeyChecking accept-new
    IdentityFile $folder/of_user
    SendEnv *SAN_OPTIONS
END
printf '#!/bin/sh\nexec ssh -F "%s/ssh_config" "$@"\n' "$folder" >by_ssh
chmod +x by_ssh
# On the first host: an sshd on both, then the words. What is left of ssh keeps this from its end.
cat >inside <<END
mkdir -p -m 755 /run/sshd
for host in h0 h1; do
    "\$PPCLI_HOST_AGENT" \$host $sshd -f /dev/null -h "$folder/of_host" -o AuthorizedKeysFile="$folder/authorized" \\
        -o StrictModes=no -o AcceptEnv='*SAN_OPTIONS' -o UsePAM=no -o PermitRootLogin=yes -o PidFile=none -E "$folder/log"
done
for try in 1 2 3 4 5 6 7 8 9 10; do
    [ "\$(grep -c 'listening on 0' log)" -ge 2 ] && break
    sleep 0.2
done
export PPCLI_HOST_AGENT=$folder/by_ssh
code=0
"\$@" || code=\$?
while cat /proc/[0-9]*/comm | grep -qx ssh; do sleep 0.05; done
exit \$code
END
on() { # on WORD...: on the first of two hosts
    last=$*
    code=0
    rm -f log
    timeout 60 "$here/machines.sh" 2 sh ./inside "$@" >out 2>err </dev/null || code=$?
}

begin "two hosts end with the weights of one process" \
    shows "$("$PPCLI" train net.ini -q | grep weights_sha256)" on "$PPCLI" train net.ini -q --stages 2 --hosts h0,h1

begin "a login that is refused is one line, in the words of ssh"
sed -i s/of_user/of_stranger/ ssh_config
fails 69 'Permission denied' on "$PPCLI" train net.ini -q --stages 2 --hosts h0,h1
err_has ").; '$folder/by_ssh h1 true' must work"
same "$(grep -c '^ppcli: ' err)" 1
sed -i s/of_stranger/of_user/ ssh_config

# ssh itself would wait for the host a quarter of an hour, and hold what our output goes to.
begin "of a host that is cut off no ssh is left"
cat >cutting <<'END'
"$PPCLI" train net.ini -q --stages 2 --hosts h0,h1 --dir run --set train.epochs=100000 --set run.hang_timeout=1 &
while ! grep -q '"type":"epoch"' run/metrics.jsonl 2>/dev/null; do sleep 0.1; done
ip -n h1 link set eth0 down
wait $!
END
fails 76 'host h1' on sh ./cutting
same "$(grep -c '^ppcli: error' err)" 1
finish
