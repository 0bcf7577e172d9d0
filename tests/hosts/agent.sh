#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What ssh is elsewhere: agent.sh HOST WORD... runs the words, joined by blanks, in a shell on a host of
# machines.sh. The host gets its own name, so that MPI does not take it for the one it is on.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
# shellcheck disable=SC2016 # the inner shells expand it
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0" && exec sh -c "$*"' "$host" "$@"
