#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The formulas that `ppcli keys pipeline.schedule` prints, beside the plans that ppcli makes.

    formulas.py PPCLI

Each "bubble ..." and "memory: ..." is read out of the text and evaluated over a grid of shapes; the plan
of each shape says what it really is. M is at least P, as the note of the key says.
"""
import functools
import itertools
import json
import math
import re
import subprocess
import sys

PPCLI = sys.argv[1]
EXACT = 1e-9
EAGER = 2


def ask(*words, text=None):
    return subprocess.run([PPCLI, *words], input=text, capture_output=True, text=True, check=False)


def value(formula, p, v, m, group):
    """2P-1, (P-1)/(VM+P-1), ..., ", rounded down" after it; None: it has no number."""
    down = formula.endswith(', rounded down')
    formula = formula.removesuffix(', rounded down')
    formula = formula.replace('memory_cap', 'P')  # as many are asked for
    if not re.fullmatch(r'[0-9PVMGk+*/() -]+', formula):
        return None
    product = re.sub(r'(?<=[0-9PVMGk)])(?=[PVMG(])', '*', formula.replace(' ', ''))
    g = group or -(-m // max(1, m // p))
    x = eval(product, {}, {'P': p, 'V': v, 'M': m, 'G': min(g, m), 'k': EAGER})  # of the pattern above only
    return math.floor(x) if down else x


def split_backward(table):
    """B as I and W, so that a gradient leaves before W, as it does in a run."""
    return re.sub(r'([0-9]+)B([0-9]+)', r'\1I\2,\1W\2', table)


@functools.lru_cache(maxsize=None)
def plan(name, p, v, m, group, early):
    words = ['plan', '--schedule', name, '--stages', str(p), '--chunks', str(v), '--microbatches', str(m)]
    words += ['--group', str(group)] if group else []
    words += ['--eager', str(EAGER)] if name == '1f1b-eager' else []
    words += ['--memory-cap', str(p)] if name in ('zb-auto', 'zb-fit', 'zb-fit-v', 'zb-exact', 'zb-exact-v') else []
    got = ask(*words, '--format', 'json')
    if got.returncode:
        return None
    made = json.loads(got.stdout)
    if early:
        table = split_backward(ask(*words, '--format', 'csv').stdout)
        made['bubble'] = json.loads(ask('plan', '--csv', '-', '--format', 'json', text=table).stdout)['bubble']
    share = made['chunks'] / made['weight_copies']
    return made['bubble'], max(r['peak_chunks'] for r in made['ranks']) / share


def formulas():
    """name -> (bubble, memory, the whole line)"""
    found = {}
    whole = re.sub(r'\n {20}(?=\S)', ' ', ask('keys', 'pipeline.schedule').stdout)  # wrapped lines
    for line in whole.splitlines():
        row = re.match(r'    ([a-z0-9-]+) +(.*; memory: .*)', line)
        if row:
            text = row.group(2) + ';'
            bubble = re.search(r'; bubble ([^;]+?)(?: when| where| without|;)', text)
            holds = re.search(r'; memory: ([^;]+?)(?: and|;)', text)
            found[row.group(1)] = (bubble.group(1) if bubble else '', holds.group(1).replace(' micro-batches', '').replace(' micro-batch', ''), row.group(2))
    return found


WORDS = {'half': 1 / 2, 'two thirds': 2 / 3, 'five sixths': 5 / 6}


def idle_share(text, bubble, p, m):
    """What is wrong with "at most half the idle time of 1f1b", or "two thirds to five sixths of" it; None: nothing."""
    said = re.search(r'(at most |([a-z]+ [a-z]+) to )([a-z]+|[a-z]+ [a-z]+) (?:of )?the idle time of 1f1b', text)
    if not said or p == 1:
        return None
    idle = [b / (1 - b) for b in (bubble, plan('1f1b', p, 1, m, 0, False)[0])]
    share, least, most = idle[0] / idle[1], WORDS.get(said.group(2), 0), WORDS[said.group(3)]
    return None if least - EXACT <= share <= most + EXACT else f'P {p} M {m}: {share:.3f} of the idle time of 1f1b'


def shapes(name, text):
    """(P, V, M, group) that the line speaks of."""
    for p, m in itertools.product((1, 2, 3, 5, 8), (1, 2, 3, 5, 8, 11, 16, 24)):
        wrong = m < p or ('M >= 2P' in text and m < 2 * p) or ('P and M even' in text and (p % 2 or m % 2))
        wrong = wrong or ('a multiple of P' in text or 'P divides M' in text) and m % p
        if wrong:
            continue
        if re.search(r'V = [12][,;]', text + ';') and 'V = 1 is' not in text:
            yield p, 2 if 'V = 2' in text else 1, m, 0
        elif 'two copies' in text:
            yield p, 2, m, 0
        else:
            for v in (2, 4):
                yield p, v, m, 0
                if 'G' in text and m > p:
                    yield p, v, m, p + 1


def main():
    lines, n, bad = formulas(), 0, 0
    for name, (bubble, holds, text) in lines.items():
        wrong, looked = [], 0
        for p, v, m, group in shapes(name, text):
            want_bubble, want_holds = value(bubble, p, v, m, group), value(holds, p, v, m, group)
            if want_bubble is None and want_holds is None:
                break
            got = plan(name, p, v, m, group, 'as in a run' in text)
            if got is None:
                continue
            looked += 1
            share = idle_share(text, got[0], p, m)
            wrong += [share] if share else []
            if group == 0 and want_bubble is not None and abs(got[0] - want_bubble) > EXACT:
                wrong.append(f'P {p} V {v} M {m}: bubble {got[0]:.6f}, {bubble} is {want_bubble:.6f}')
            differs = 0 if 'memory_cap' in holds and got[1] <= want_holds else got[1] - min(m, want_holds or m)
            if want_holds is not None and abs(differs) > EXACT:
                wrong.append(f'P {p} V {v} M {m} group {group}: holds {got[1]}, {holds} is {min(m, want_holds)}')
        n += 1
        print(f'{"not ok" if wrong else "ok"} {n} - {name}: {looked} shapes as the formulas say')
        for line in wrong[:20]:
            print('#', line)
            print(f'{name}: {line}', file=sys.stderr)  # meson shows no comments of TAP
        bad += bool(wrong)
    n += 1
    enough = len(lines) >= 20 and sum('idle time of 1f1b' in text for *_, text in lines.values()) == 3
    print(f'{"ok" if enough else "not ok"} {n} - {len(lines)} schedules have formulas')
    print(f'1..{n}')
    return 1 if bad or not enough else 0


sys.exit(main())
