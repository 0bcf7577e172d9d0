#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of `ppcli plan --html` in headless Chromium: its proof and times against those of ppcli,
edits by mouse and keys, levels, files.

    workbench_page.py PPCLI TABLES [FOLDER for screenshots]"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

import browser
from browser import check, failures
import workbench_tables


class Bench:
    """One page, and hands on it."""

    def __init__(self, ppcli, folder, page):
        self.ppcli, self.folder, self.page, self.path = ppcli, folder, page, f'{folder}/page.html'

    def run(self, *words, good=True):
        done = subprocess.run([self.ppcli, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if good and done.returncode:
            raise RuntimeError(f'{words}: {done.stderr}')
        return done.stdout if good else done.stderr

    def plan(self, *words):
        self.run('plan', *words, '--html', self.path)
        self.page.open(self.path)
        self.show_board()

    def schedule(self, name, p, m, *words):
        self.plan('--schedule', name, '--stages', str(p), '--microbatches', str(m), *words)

    def show_board(self):
        self.page.run('document.querySelector("canvas").scrollIntoView({ block: "center" })')
        self.page.settle()

    def table(self):
        return self.page.run('workbench.writeTable(workbench.wb.rows)')

    def rows(self):
        return workbench_tables.cut(self.table())

    def why(self):
        return self.page.text('#why')

    def spot(self):
        return self.page.text('#spot')

    def point(self, rank, k, part=0.5):
        """A point on action k of a rank; k past the end: after its last one."""
        return self.page.run(f"""(() => {{
            const box = document.querySelector('canvas').getBoundingClientRect(), {{ start, end }} = workbench.wb.places.rows[{rank}];
            const view = workbench.wb.view || {{ from: 0, to: workbench.wb.places.total * 1.001 }}, row = (box.height - 20) / workbench.wb.rows.length;
            const time = {k} < end.length ? start[{k}] + (end[{k}] - start[{k}]) * {part} : end[end.length - 1] * 1.0005;
            return [box.left + 64 + (time - view.from) / (view.to - view.from) * (box.width - 64), box.top + {rank} * row + 6];
        }})()""")

    def click(self, rank, k):
        x, y = self.point(rank, k)
        self.page.mouse('mousePressed', x, y, button='left', clickCount=1)
        self.page.mouse('mouseReleased', x, y, button='left', clickCount=1)

    def drag(self, rank, k, to_rank, to_k, drop=True):
        x, y = self.point(rank, k)
        self.page.mouse('mouseMoved', x, y)
        self.page.mouse('mousePressed', x, y, button='left', clickCount=1)
        x, y = self.point(to_rank, to_k, 0.2)
        self.page.mouse('mouseMoved', x - 8, y, button='left', buttons=1)
        self.page.mouse('mouseMoved', x, y, button='left', buttons=1)
        if drop:
            self.page.mouse('mouseReleased', x, y, button='left', clickCount=1)
            self.page.mouse('mouseMoved', 1, 1)

    def press(self, label):
        found = self.page.run("""((label) => { const b = [...document.querySelectorAll('button')].find((b) => b.textContent === label);
            if (b) b.click(); return Boolean(b); })(""" + json.dumps(label) + ')')
        if not found:
            raise RuntimeError('no button ' + label)

    def read(self, text):
        self.page.run(f'document.getElementById("csv").value = {json.dumps(text)}')
        self.press('Read what is written here')

    def quiet(self, name):
        check(name + ': no message in the console', not self.page.messages, self.page.messages)


# ---- 2,000 tables

def costs_of(words):
    given = dict(zip(words[::2], map(float, words[1::2])))
    half = given.get('--cost-b', 2) / 2
    return [given.get('--cost-f', 1), given.get('--cost-i', half), given.get('--cost-w', half),
            given.get('--cost-comm', 0), given.get('--cost-overlap', 0)]


JUDGE = """(tables) => tables.map(([text, [f, i, w, latency, overlap], cap]) => {
  let rows;
  try { rows = workbench.readTable(text); } catch (e) { return { error: e.message }; }
  const free = workbench.judge(rows, { f: [1], i: [1], w: [1], latency: 0, transfer: null, overlap: 0 }, 0);
  const of = (x) => Array(Math.min(free.nVirtual, 500)).fill(x / (free.chunks || 1));
  const t = workbench.judge(rows, { f: of(f), i: of(i), w: of(w), latency, transfer: null, overlap }, cap), s = t.sim;
  return t.error ? { error: t.error.where + t.error.text } : { error: null, makespan: s.makespan, bubble: s.bubble, work: s.work, first: s.first,
    last: s.now, peak: s.peak, actions: t.lists.map((list, r) => list.map((a, k) => [a.op, a.stage, a.mb, s.start[r][k], s.end[r][k]])) };
})"""


def actions_of(trace):
    """rank -> {(letter, stage, mb): (start, end)} in millionths of a unit; a B is its I and its W."""
    ranks = {}
    for e in json.loads(trace):
        if e['ph'] == 'X' and e.get('cat') in ('F', 'I', 'W', 'R'):
            start, took = round(e['ts'] * 1000), round(e['dur'] * 1000)
            key = (e['cat'], e['args']['stage'], e['args']['microbatch'])
            ranks.setdefault(e['pid'], {})[key] = (start, start + took)
    return [ranks[pid] for pid in sorted(ranks)]


def same_actions(page, trace):
    for mine, theirs in zip(page, actions_of(trace)):
        for op, stage, mb, start, end in mine:
            first, last = ('I', 'W') if op == 'B' else (op, op)
            at = (theirs[first, stage, mb][0], theirs[last, stage, mb][1])
            if abs(at[0] - start * 1e6) > 1 or abs(at[1] - end * 1e6) > 1.5:
                return False
    return True


def equal(got, error, figures):
    if error or got['error']:
        return got['error'] == error
    ranks = figures['ranks']
    return (got['makespan'] == figures['makespan'] and abs(got['bubble'] - figures['bubble']) < 1e-12 and
            got['work'] == [r['work'] for r in ranks] and got['peak'] == [r['peak_chunks'] for r in ranks] and
            got['first'] == [r['first_start'] for r in ranks] and got['last'] == [r['last_end'] for r in ranks] and
            same_actions(got['actions'], figures['trace']))


def tables(b, n):
    """Verdicts word for word, and times to the last bit."""
    b.schedule('1f1b', 2, 2)
    asked = list(workbench_tables.tables(b.ppcli, n, 5))
    kinds, wrong = {}, []
    for at in range(0, n, 100):
        some = asked[at:at + 100]
        answers = b.page.run(f'({JUDGE})({json.dumps([[t, costs_of(c), cap] for t, c, cap in some])})')
        for table, got in zip(some, answers):
            error, figures = workbench_tables.judge(b.ppcli, table, b.folder)
            kind = re.sub(r'\d[\d.]*[FIWB]*\d*', 'N', error or 'legal')[:36]
            kinds[kind] = kinds.get(kind, 0) + 1
            if not equal(got, error, figures):
                wrong.append((table, error, figures and figures['makespan'], {k: got[k] for k in got if k != 'actions'}))
    print(f'     {n} tables: ' + '; '.join(f'{c} {k}' for k, c in sorted(kinds.items(), key=lambda x: -x[1])))
    check(f'{n} tables: proof and times are those of ppcli plan --csv', not wrong, len(wrong), *wrong[:3])
    check('legal ones, deadlocks, orders and limits are among them', kinds.get('legal', 0) > n / 10 and
          all(any(word in kind for kind in kinds) for word in ('wait', 'comes before', 'holds N micro', 'twice')), kinds)
    b.quiet('tables')


# ---- what the page says

def names(b):
    """A table of a known schedule is called by its name; par is the best of the shape."""
    for name, p, m, v in (('1f1b', 4, 8, 1), ('gpipe', 3, 5, 1), ('zb-h1', 4, 8, 1), ('zb-h2', 4, 8, 1), ('interleaved', 2, 4, 2),
                          ('zb-v', 4, 8, 2), ('v-half', 4, 8, 2), ('looped-bfs', 2, 4, 2), ('dualpipev', 2, 6, 2), ('hanayo', 2, 4, 2)):
        b.schedule(name, p, m, *(['--chunks', str(v)] if v > 1 else []))
        check(f'{name} is recognized', re.search(f'This is {name}[. ]', b.why()) or name in b.why(), b.why())
        best = min(json.loads(b.run('plan', '--schedule', k, '--stages', str(p), '--microbatches', str(m), '--chunks', str(v), '--format', 'json'))
                   ['makespan'] for k in b.page.run('workbench.wb.known.map((k) => k.name)'))
        check(f'par of {name}', b.page.run('document.querySelectorAll(".card .big")[1].textContent') == f'{best:g}', best, b.page.text('.cards'))
    b.schedule('1f1b', 4, 8)
    b.drag(0, 5, 0, 4)
    check('an edited table has no name', 'This is' not in b.why(), b.why())
    b.schedule('1f1b', 4, 8, '--cost-comm', '0.5', '--cost-f', '1,2,1,1')
    figures = json.loads(b.run('plan', '--schedule', '1f1b', '--stages', '4', '--microbatches', '8', '--cost-comm', '0.5', '--cost-f', '1,2,1,1', '--format', 'json'))
    check("the plan's own costs", f"{figures['makespan']:.6g}" in b.why(), b.why(), figures['makespan'])


def reasons(b):
    """Every gap says what it waits for; the critical path is a chain."""
    b.schedule('1f1b', 4, 8, '--cost-comm', '0.25')
    gaps = b.page.run("""workbench.wb.t.lists.flatMap((list, r) => [...list.keys(), list.length].map((k) => {
        const s = workbench.wb.t.sim, until = k < list.length ? s.start[r][k] : s.makespan, from = k ? s.end[r][k - 1] : 0;
        return until > from ? workbench.whyIdle(workbench.wb.t, r, k) : null; })).filter((x) => x !== null)""")
    check('each of its gaps has a reason', len(gaps) > 10 and all(re.search(r'waits for \d[FB]\d+ of rank \d|done; the step ends with 0B7 of rank 0', g)
                                                                 for g in gaps), gaps)
    x, y = b.point(3, 0)
    b.page.mouse('mouseMoved', x - 40, y)
    check('the pointer on a gap shows it', 'Rank 3: 3F0 waits for 2F0 of rank 2' in b.page.text('#tip'), b.page.text('#tip'))
    b.page.mouse('mouseMoved', *b.point(1, 3))
    check('and on an action its times', '1B0 on rank 1: from' in b.page.text('#tip') and 'waits for 2B0 of rank 2' in b.page.text('#tip'), b.page.text('#tip'))
    b.press('Critical path')
    check('the path ends where the step ends and begins at 0', b.page.run("""(() => { const t = workbench.wb.t, s = t.sim, path = workbench.criticalPath(t);
        const linked = path.every(([r, k], i) => i + 1 === path.length ? s.start[r][k] === 0
          : Math.abs(s.start[r][k] - s.end[path[i + 1][0]][path[i + 1][1]] - (path[i + 1][0] === r ? 0 : 0.25)) < 1e-9);
        return linked && s.end[path[0][0]][path[0][1]] === s.makespan; })()"""))
    check('its button is pressed', b.page.run('[...document.querySelectorAll("button")].some((b) => b.textContent === "Critical path" && b.ariaPressed === "true")'))
    b.quiet('reasons')


def mouse(b):
    b.schedule('gpipe', 3, 4, '--memory-cap', '3')
    check('over the memory limit', b.why().startswith('Over the memory limit: row 1 holds 4 micro-batches of activations, --memory-cap allows 3'), b.why())
    for rank, moves in ((0, ((4, 3), (5, 5))), (1, ((4, 2), (5, 4), (6, 6))), (2, ((4, 1), (5, 3), (6, 5)))):
        for k, to in moves:
            b.drag(rank, k, rank, to)
    check('dragged to 1f1b', 'This is 1f1b' in b.why() and 'takes 18' in b.why(), b.why(), b.table())
    before = b.table()
    b.drag(1, 2, 1, 0, drop=False)
    check('while it is dragged the page says why it cannot stay', 'Here it cannot run' in b.spot() and '1B0 comes before its 1F0 (cell 2)' in b.spot(), b.spot())
    b.page.key('Escape')
    b.page.mouse('mouseReleased', 2, 2, button='left', clickCount=1)
    check('Escape leaves it where it was', b.table() == before)
    b.drag(1, 2, 1, 0)
    check('dropped there it is refused in one sentence', b.why().startswith('Cannot run: 2:1: 1B0 comes before its 1F0'), b.why())
    b.press('Undo')
    check('undo', b.table() == before and 'Legal' in b.why())
    b.press('Redo')
    check('redo', b.table() != before and 'Cannot run' in b.why())
    b.press('Undo')
    b.drag(0, 0, 2, 0)
    check('on another rank', '0F0: there are cells of stage 0 on rank 0' in b.why(), b.why())
    b.press('Undo')
    b.click(2, 3)
    b.press('Delete')
    check('deleted', 'stage 2 has no 2B1' in b.why(), b.why())
    b.page.run('document.getElementById("insert").value = "2B1"')
    b.click(2, 3)
    b.press('Insert')
    check('inserted again', b.table() == before, b.table(), before)
    b.page.call('Emulation.setTouchEmulationEnabled', enabled=True)
    (x, y), (x2, y2) = b.point(2, 4), b.point(0, 4)
    for _ in range(2):  # a tap selects, then the finger drags
        b.page.call('Input.dispatchTouchEvent', type='touchStart', touchPoints=[{'x': x, 'y': y}])
        for part in (0.3, 0.6, 1) if _ else ():
            b.page.call('Input.dispatchTouchEvent', type='touchMove', touchPoints=[{'x': x + (x2 - x) * part, 'y': y + (y2 - y) * part}])
        b.page.call('Input.dispatchTouchEvent', type='touchEnd', touchPoints=[])
    b.page.call('Emulation.setTouchEmulationEnabled', enabled=False)
    check('a finger drags the selected action', b.rows() != workbench_tables.cut(before) and 'to rank 0' in b.why(), b.why(), b.table())
    b.quiet('mouse')


def keys(b):
    b.schedule('1f1b', 3, 4)
    before = b.table()
    b.page.run('document.querySelector("canvas").focus()')
    b.page.key('ArrowRight')
    for key in ('ArrowRight', 'ArrowRight', 'ArrowDown', 'ArrowRight'):
        b.page.key(key)
    check('arrows select', b.page.run('JSON.stringify(workbench.wb.selected)') == '{"rank":1,"k":2}', b.page.run('workbench.wb.selected'), b.spot())
    b.page.key('ArrowLeft', shift=True)
    check('Shift moves the action', b.rows()[1][:3] == ['1F0', '1B0', '1F1'] and 'Legal' in b.why(), b.table(), b.why())
    b.page.key('ArrowRight', shift=True)
    check('and back', b.table() == before)
    b.page.key('s')
    check('S splits a B', b.rows()[1][2:4] == ['1I0', '1W0'], b.table())
    b.page.key('s')
    check('and joins it', b.table() == before)
    b.page.key('Delete')
    check('Delete', 'has no' in b.why(), b.why())
    b.page.key('z', control=True)
    check('Ctrl+Z', b.table() == before)
    b.page.key('y', control=True)
    b.page.key('z', control=True)
    b.page.key('i')
    for key in '1F9':
        b.page.key(key)
    b.page.key('Enter')
    check('I, an action and Enter insert it', '1F9' in b.rows()[1] and 'without gaps' in b.why(), b.table(), b.why())
    b.page.key('z', control=True)
    b.page.key('ArrowDown', shift=True)
    check('Shift and down: to the next rank', any('1B0' in cell for cell in b.rows()[2]) and 'on one rank' in b.why(), b.table(), b.why())
    b.page.key('z', control=True)
    for key in ('c', '+', '+', 'End', 'Home', '-', '0'):
        b.page.key(key)
    check('nothing of that changed the table', b.table() == before and b.page.run('workbench.wb.view === null'))
    b.quiet('keys')


def wrong(b):
    """Deadlock, order of messages, descending gradients, from what is written in the field."""
    b.schedule('1f1b', 2, 2)
    b.read('0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n')
    check('a deadlock names its circle', 'these ranks wait for each other: ' in b.why() and ' waits for ' in b.why(), b.why())
    b.click(0, 1)
    check('an action that never runs says so', '0B0 on rank 0 never runs: 0B0 waits for the gradient of micro-batch 0 from stage 1 on rank 1' in b.spot(), b.spot())
    check('no rank of it is called done', b.page.run('workbench.whyIdle(workbench.wb.t, 1, 4)') == '')
    b.read('0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n')
    check('the order of messages', 'row 2 cell 1: 1F1 comes before 1F0, but rank 0 sends activations 0 first' in b.why(), b.why())
    b.read('0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n')
    check('descending gradients become what runs', b.table() == '0F0,0F1,0I1,0B0,0W1\n1F0,1F1,1I1,1B0,1W1\n' and 'ascending order' in b.why(), b.table(), b.why())
    b.read('0F0,what\n')
    check('what is not a cell is refused', "'what' is not a cell" in b.why(), b.why())
    b.read('# a comment\n0F0,,0B0\n,1F0,1B0\n')
    check('comments and idle cells are read', 'Legal' in b.why() and b.rows() == [['0F0', '0B0'], ['1F0', '1B0']], b.why())
    b.quiet('wrong')


# ---- levels

def solve(b, target, by_mouse):
    for rank, row in enumerate(target):
        for cell in row:
            found = re.fullmatch(r'(\d+)I(\d+)', cell)
            whole = found and f'{found[1]}B{found[2]}'
            if whole and whole in b.rows()[rank]:
                b.click(rank, b.rows()[rank].index(whole))
                b.page.key('s')
        for k, cell in enumerate(row):
            at = b.rows()[rank].index(cell)
            if at != k and by_mouse:
                b.drag(rank, at, rank, k)
            elif at != k:
                b.click(rank, at)
                for _ in range(at - k):
                    b.page.key('ArrowLeft', shift=True)


def levels(b):
    b.schedule('1f1b', 2, 4)
    plan = b.table()

    def of(name, p, m, *words):
        return workbench_tables.cut(b.run('plan', '--schedule', name, '--stages', str(p), '--microbatches', str(m), *words, '--format', 'csv'))

    one = of('1f1b', 3, 4)
    wall = [['0F0', '0F1', '0B0', '0F2', '0B1', '0F3', '0B2', '0B3'], ['1F0', '1F1', '1B0', '1F2', '1B1', '1F3', '1B2', '1B3'], one[2]]
    halves = [one[0]] + [[half for cell in row for half in workbench_tables.split(cell)] for row in one[1:]]
    targets = [of('gpipe', 3, 4), wall, of('1f1b', 4, 6), of('interleaved', 2, 4, '--chunks', '2'), halves, of('zb-h1', 3, 5), of('zb-h2', 3, 6), of('zb-v', 2, 4)]
    named = ['gpipe', None, '1f1b', 'interleaved', None, 'zb-h1', 'zb-h2', 'zb-v']
    for i, target in enumerate(targets):
        title = b.page.run('document.querySelectorAll(".levels button")[%d].textContent' % i)
        b.press(title)
        b.show_board()
        check(f'level {title}: not solved when it begins', 'Solved' not in b.why(), b.why())
        for n in (1, 2, 3):
            b.press(f'Help {n} of 3')
        check(f'level {title}: it has a par', b.page.run('document.querySelectorAll(".card .big")[1].textContent') != '\u2013', b.page.text('.cards'))
        check(f'level {title}: three steps of help', b.page.run('document.querySelectorAll("#task .help").length') == 3)
        b.show_board()
        solve(b, target, i % 2 == 0)
        check(f'level {title}: solved by its moves', b.why().startswith('Solved.') and (not named[i] or f'This is {named[i]}' in b.why()), b.why(), b.table())
    b.press('Back to the plan')
    check('the plan is as it was', b.table() == plan)
    b.quiet('levels')


# ---- files

def wait_for(path):
    for _ in range(600):
        if os.path.exists(path) and os.path.getsize(path):
            return
        time.sleep(0.1)


def files(b):
    b.schedule('1f1b', 2, 4)
    saved = f'{b.folder}/saved'
    os.mkdir(saved)
    b.page.call('Page.setDownloadBehavior', behavior='allow', downloadPath=saved)
    b.click(1, 1)
    b.page.key('s')
    for label, name in (('Save CSV', 'mine.csv'), ('SVG', 'schedule.svg'), ('PNG', 'schedule.png')):
        b.press(label)
        wait_for(f'{saved}/{name}')
    with open(f'{saved}/mine.csv', encoding='utf-8') as f:
        text = f.read()
    check('the CSV is the table', text == b.table() and '1I0,1W0' in text, text)
    check('and of ppcli the same', b.run('plan', '--csv', f'{saved}/mine.csv', '--format', 'csv') == text)
    with open(f'{b.folder}/small.ini', 'w', encoding='utf-8') as f:
        f.write('[data]\ndataset = synthetic\ntrain_samples = 64\ntest_samples = 32\n[model]\nsizes = 20 16*2 5\n[pipeline]\nstages = 2\n'
                'microbatches = 4\n[train]\nepochs = 1\nbatch_size = 32\n')
    b.run('train', f'{b.folder}/small.ini', '--schedule', f'file:{saved}/mine.csv', '--dir', f'{b.folder}/run', '-q')
    check('it trains', os.path.exists(f'{b.folder}/run/summary.json'))
    tree = xml.etree.ElementTree.parse(f'{saved}/schedule.svg').getroot()
    words = [t.text for t in tree.iter('{http://www.w3.org/2000/svg}text')]
    check('the SVG has every action', tree.tag.endswith('svg') and all(w in words for w in ('F0', 'B3', 'I0', 'W0', 'rank 1')), words)
    with open(f'{saved}/schedule.png', 'rb') as f:
        check('the PNG is one', f.read(8) == b'\x89PNG\r\n\x1a\n')
    table = b.table()
    b.press('Link')
    link = b.page.run('location.hash')
    shutil.copy(b.path, f'{b.folder}/copy.html')
    b.page.open(f'{b.folder}/copy.html{link}')
    check('the link holds the table', b.table() == table and 'Read from the link' in b.why(), link, b.why())
    b.page.open(f'{b.folder}/page.html#table=0F0,%%%')
    check('a damaged link is named', 'The link holds no table' in b.why(), b.why())
    root = b.page.call('DOM.getDocument')['root']['nodeId']
    node = b.page.call('DOM.querySelector', nodeId=root, selector='#file')['nodeId']
    b.page.call('DOM.setFileInputFiles', nodeId=node, files=[f'{saved}/mine.csv'])
    b.page.run("""new Promise((done) => { const look = () => document.getElementById('why').textContent.includes('mine.csv')
        ? done(1) : setTimeout(look, 20); look(); })""")
    check('a CSV is opened', b.table() == table and 'Read from mine.csv' in b.why(), b.why(), b.table())
    b.page.run("""(() => { const cap = document.getElementById('cap'); cap.value = '1.5'; cap.dispatchEvent(new Event('change')); })()""")
    check('a limit that is set in the page', 'row 1 holds 2 micro-batches of activations, --memory-cap allows 1.5' in b.why(), b.why())
    b.run('plan', f'{b.folder}/small.ini', '--html', b.path)
    b.page.open(b.path)
    check('the plan of a config', 'Legal' in b.why(), b.why())
    error = b.run('plan', '--schedule', 'dualpipe', '--stages', '2', '--microbatches', '8', '--html', b.path, good=False)
    check('two copies of the weights are refused', 'two copies of the weights' in error and '--format svg' in error, error)
    b.quiet('files')


# ---- sizes and colours

def sizes(b, shots):
    def shoot(name):
        if shots:
            b.page.screenshot(f'{shots}/{name}.png')

    b.schedule('zb-v', 4, 8, '--memory-cap', '4')
    b.press('Critical path')
    b.click(1, 9)
    shoot('light')
    b.page.media('prefers-color-scheme', 'dark')
    check('dark as the system says', b.page.run('getComputedStyle(document.body).backgroundColor') == 'rgb(13, 17, 23)')
    shoot('dark')
    b.page.media('prefers-color-scheme', 'light')
    b.page.call('Emulation.setDeviceMetricsOverride', width=400, height=800, deviceScaleFactor=1, mobile=False)
    for label in (None, '4 Interleaved'):
        if label:
            b.press(label)
        b.page.settle()
        check(f'400 pixels wide: nothing sticks out{" in a level" if label else ""}', b.page.run('document.documentElement.scrollWidth') <= 400,
              b.page.run('document.documentElement.scrollWidth'))
        shoot('narrow-level' if label else 'narrow')
    b.show_board()
    b.drag(0, 8, 0, 4)
    check('an action is dragged there too', 'Moved' in b.why(), b.why())
    b.page.call('Emulation.setDeviceMetricsOverride', width=1280, height=900, deviceScaleFactor=1, mobile=False)
    b.schedule('1f1b', 64, 128)
    b.page.run('document.querySelector("canvas").scrollIntoView()')
    took = []
    for k in (70, 72, 74, 76, 78):
        b.click(2, k)
        b.page.key('ArrowRight', shift=True)
        took.append(b.page.run('workbench.wb.edit'))
    print('     64 ranks x 128 micro-batches: an edit takes ' + ', '.join(f'{x:.1f}' for x in took) + ' ms')
    check('64 x 128: edits are judged', 'Moved' in b.why(), b.why())
    b.page.screenshot(f'{shots}/large.png', whole=False) if shots else None
    b.quiet('sizes')


def main():
    program = browser.find()
    if not program:
        print('no Chromium (chromium, chromium-browser, google-chrome): the page is not looked at')
        return 77
    shots = sys.argv[3] if len(sys.argv) > 3 else None
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(browser.Browser(program)) as page:
        b = Bench(sys.argv[1], folder, page)
        for case in (names, reasons, mouse, keys, wrong, levels, files):
            case(b)
        sizes(b, shots)
        tables(b, int(sys.argv[2]))
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
