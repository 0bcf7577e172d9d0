#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trace or timeline.json is what it promises to be:

    check_trace.py [--cut] FILE [CONDITION...]

Checks that slices of a track do not overlap, that every message that was taken has one arrow that
ends after it begins, and that no activation is left over; then every CONDITION, a Python expression
over d (the events), head (what the first one says), x (the slices), ns (a time in nanoseconds) and
summary (summary.json beside the file) and json. --cut: the end of the file may be missing. Prints what is
wrong and exits 1."""

import collections
import json
import os
import sys

COMPUTE = {'F', 'I', 'W', 'update'}
TRACKS = {'send': 1, 'slot': 1, 'recv': 2, 'release': 2}
SIMULATED = 10000


def load(path, cut):
    with open(path, encoding='utf-8') as f:
        text = f.read()
    if cut and not text.rstrip().endswith(']'):
        text += ']'
    return json.loads(text)


def ns(microseconds):
    return round(microseconds * 1000)


def overlaps(x):
    tracks = collections.defaultdict(list)
    for e in x:
        tracks[e['pid'], e['tid']].append((ns(e['ts']), ns(e['ts']) + ns(e['dur']), e))
    for track, slices in tracks.items():
        slices.sort(key=lambda s: s[:2])
        for a, b in zip(slices, slices[1:]):
            if b[0] < a[1]:
                yield f'{track}: {a[2]} runs into {b[2]}'


def arrows(d, x, slack_ns, cut):
    """Measured messages: as many arrows as recv slices, each with both ends, in this order as far
    as clocks of several processes agree."""
    sent = {e['id']: e for e in d if e['ph'] == 's' and e['pid'] < SIMULATED}
    taken = {e['id']: e for e in d if e['ph'] == 'f' and e['pid'] < SIMULATED}
    n = sum(e['cat'] == 'recv' and e['pid'] < SIMULATED for e in x)
    lost = n - len(taken)
    if lost != 0 and not (cut and lost == 1):  # the file may end between a slice and its arrow
        yield f'{n} messages taken, {len(taken)} arrows end'
    if not cut and sent.keys() != taken.keys():
        yield f'arrows with one end only: {sorted(sent.keys() ^ taken.keys())[:10]}'
    for i in sent.keys() & taken.keys():
        if ns(sent[i]['ts']) > ns(taken[i]['ts']) + slack_ns:
            yield f'arrow {i} ends before it begins: {sent[i]} {taken[i]}'


def leftovers(d):
    last = {}
    for e in d:
        if e['ph'] == 'C':
            last[e['pid']] = e
            if min(e['args'].values()) < 0:
                yield f'less than nothing is alive: {e}'
    for e in last.values():
        if max(e['args'].values()) > 0:
            yield f'still alive at the end: {e}'


def problems(d, cut):
    head = d[0]
    if head['name'] != 'ppcli' or head['args']['schema'] != 1:
        yield f'first event: {head}'
    slack_ns = 2 * max(head['args']['clock_error_ns'])
    x = [e for e in d if e['ph'] == 'X']
    named = {e['pid']: e['args']['name'] for e in d if e['name'] == 'process_name'}
    for e in x:
        if e['tid'] != TRACKS.get(e['cat'], 0):
            yield f'on the wrong track: {e}'
        kind = 'simulated' in named.get(e['pid'], '?')
        if kind != (e['pid'] >= SIMULATED):
            yield f'of no process: {e}'
    yield from overlaps(x)
    yield from arrows(d, x, slack_ns, cut)
    if not cut:
        yield from leftovers(d)


def main():
    words = sys.argv[1:]
    cut = words[0] == '--cut'
    path, conditions = words[cut], words[cut + 1:]
    d = load(path, cut)
    wrong = list(problems(d, cut))
    scope = {'json': json, 'd': d, 'head': d[0]['args'], 'ns': ns, 'COMPUTE': COMPUTE,
             'x': [e for e in d if e['ph'] == 'X']}
    beside = os.path.join(os.path.dirname(path), 'summary.json')
    if os.path.exists(beside):
        with open(beside, encoding='utf-8') as f:
            scope['summary'] = json.load(f)
    wrong += [f'not so: {c}' for c in conditions if not eval(c, scope)]
    for line in wrong[:20]:
        print(line)
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
