#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pages of `ppcli report` as a browser shows them, in headless Chromium.

    report_page.py PPCLI"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import browser
from browser import check, failures
import report_folders

CONFIG = """[data]
dataset = synthetic
train_samples = 320
test_samples = 50
[model]
sizes = 20 16*3 5
[pipeline]
stages = 2
[train]
epochs = 3
batch_size = 32
[run]
log_every = 2
"""
GUTTER = 64  # where the first action begins on a timeline

class Pages:
    def __init__(self, ppcli, folder, page):
        self.ppcli, self.folder, self.page = ppcli, folder, page

    def run(self, *words):
        done = subprocess.run([self.ppcli, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f'{words}: {done.stderr}')
        return done.stdout

    def train(self, name, *words):
        self.run('train', f'{self.folder}/small.ini', '--dir', f'{self.folder}/{name}', '-q', *words)

    def show(self, name, *runs):
        """The page of runs, in the browser; it must have nothing to complain about."""
        path = f'{self.folder}/page.html'
        self.run('report', *[f'{self.folder}/{run}' for run in runs], '-o', path)
        self.load(name, path)

    def load(self, name, path):
        self.page.open(path)
        check(f'{name}: no console message, no request', not self.page.messages, self.page.messages)
        self.page.run('document.querySelectorAll("details").forEach((d) => { d.open = true; })')
        self.text = re.sub(r'\s+', ' ', self.page.text())

    def says(self, name, *wanted):
        lacking = [words for words in wanted if words not in self.text]
        check(name, not lacking, lacking, self.text)

    def press(self, label):
        self.page.run(f"""[...document.querySelectorAll('main button')].find(
            (b) => b.textContent === {json.dumps(label)}).click()""")
        self.page.settle()

    def lane(self, number=0):
        """The place of a timeline, which is scrolled to."""
        select = f'document.querySelectorAll(".lane canvas")[{number}]'
        self.page.run(f'{select}.scrollIntoView({{block: "center"}})')
        self.page.settle()
        return self.page.run(f'{select}.getBoundingClientRect().toJSON()')

    def hover(self, x, y):
        self.page.mouse('mouseMoved', x, y)
        self.page.settle()
        return '' if self.page.run('document.getElementById("tip").hidden') else self.page.text('#tip')

    def range(self):
        return self.page.text('.range-text')


def figures(p):
    p.show('a run', 'a')
    with open(f'{p.folder}/a/summary.json', encoding='utf-8') as f:
        s = json.load(f)
    p.says('the figures are those of summary.json', s['weights_sha256'], f'{s["test_accuracy"] * 100:.2f} %',
           f'{s["samples_per_second"]:,.0f}', f'{s["bubble_measured"] * 100:.1f} %',
           f'{s["bubble_ideal"] * 100:.1f} % ideal', f'{s["bubble_predicted"] * 100:.1f} % predicted',
           f'{s["steps"]:,} steps, 3 epochs', f'test loss {s["test_loss"]:.4g}',
           f'training loss {s["train_loss"]:.4g}', *[f'{rank["busy"] * 100:.1f} %' for rank in s['ranks']])
    p.says('sections, config and environment are there', 'Training', 'One step of the pipeline', 'Ranks',
           'pipeline.stages', 'small.ini:8', 'activations', 'packed copy', 'ranks talk through threads')
    check('a whole run says nothing is missing', 'did not finish' not in p.text and 'no timeline' not in p.text)
    curves = p.page.run('[...document.querySelectorAll(".chart")].map((c) => c.querySelectorAll("path.curve").length)')
    check('calibration, and four curves: loss and accuracy with test points', curves == [0, 2, 2, 1, 1], curves)


def timeline(p):
    p.show('a known step', 'steady')
    place = p.lane()
    across = lambda us: place['left'] + GUTTER + (place['width'] - GUTTER) * us / 670
    tips = [p.hover(across(us), place['top'] + y) for us, y in ((400, 55), (150, 55), (480, 15))]
    check('hovering names action, rank, stage, micro-batch, start, time and prediction, and what it waited for',
          tips == ['F1 forward\nrank 1, stage 1, micro-batch 1\nstarts at 360 \u00b5s, takes 100 \u00b5s\n'
                   'predicted 50 \u00b5s (2 \u00d7 as long)\ndid not wait: F1 of rank 0 ended 160 \u00b5s before',
                   'F0 forward\nrank 1, stage 1, micro-batch 0\nstarts at 110 \u00b5s, takes 100 \u00b5s\n'
                   'predicted 50 \u00b5s (2 \u00d7 as long)\nwaited 110 \u00b5s for F0 of rank 0',
                   'waiting for a message\nrank 0, stage 0, micro-batch 1\nstarts at 430 \u00b5s, takes 140 \u00b5s\n'
                   'waits for I1 of rank 1, which I1 needs'], *tips)
    check('beside a timeline is nothing to tell', p.hover(place['left'] + 20, place['top'] + 10) == '')
    x, y = place['left'] + place['width'] / 2, place['top'] + 15
    whole = p.range()
    p.page.mouse('mouseWheel', x, y, deltaX=0, deltaY=-400)
    p.page.settle()
    near = p.range()
    p.page.mouse('mousePressed', x, y, button='left', clickCount=1)
    p.page.mouse('mouseMoved', x - 90, y, button='left', buttons=1)
    p.page.mouse('mouseReleased', x - 90, y, button='left', clickCount=1)
    p.page.settle()
    dragged = p.range()
    check('the wheel zooms, dragging moves', len({whole, near, dragged}) == 3, whole, near, dragged)
    p.page.run('document.querySelector(".lane canvas").focus()')
    p.page.key('+')
    nearer = p.range()
    p.page.key('ArrowLeft')
    moved = p.range()
    p.page.key('0')
    check('so do the keys, and 0 shows all', len({dragged, nearer, moved, whole}) == 4 and p.range() == whole,
          dragged, nearer, moved, p.range())
    p.page.key('ArrowRight', shift=True)
    first = p.page.text('#tip')
    p.page.key('ArrowRight', shift=True)
    p.page.key('ArrowDown', shift=True)
    check('shift and arrows go from action to action', first.startswith('F0') and 'rank 1' in p.page.text('#tip'),
          first, p.page.text('#tip'))
    p.press('Overlay')
    check('both in one row', p.page.run('document.querySelectorAll(".lane canvas").length') == 1)
    p.press('Time shares')
    shares = p.page.run("""[...document.querySelectorAll('.shares .stack')].map((bar) =>
        [...bar.children].reduce((sum, part) => sum + parseFloat(part.style.width), 0))""")
    check('the shares of every rank are all of its time', len(shares) == 4 and all(abs(x - 100) < 0.1 for x in shares),
          shares)
    check('and nobody complained', not p.page.messages, p.page.messages)


def many_ranks(p):
    with open(f'{p.folder}/plan.html', 'w', encoding='utf-8') as f:
        f.write(p.run('plan', '--schedule', 'zb-v', '--stages', '64', '--microbatches', '128', '--format', 'page'))
    p.load('a plan of 64 ranks', f'{p.folder}/plan.html')
    p.says('its time is in units of its costs', 'zb-v · 64 stages · 128 micro-batches', '415.5 units', '7.6 %')
    place = p.lane()
    tip = p.hover(place['left'] + place['width'] - 4, place['bottom'] - 28)
    check('its last action is on rank 63', re.match(r'W\d+ weight gradient\s+rank 63, stage 6\d, chunk 0', tip), tip)


def states(p):
    p.show('a resumed run that was killed', 'resumed')
    p.says('it has the layout of the last start and says what happened', '4 stages', 'Resumed 1 time, at step 24',
           'This run did not finish.', 'by step 34 of 50 (68 %)', 'There is no timeline.json')
    seen = p.page.run("""[...document.querySelectorAll('.chart')].slice(0, 2).map((c) =>
        [c.querySelector('path.curve').getAttribute('d').match(/[ML]/g).length,
         ...[...c.querySelectorAll('.mark text')].map((t) => t.textContent)])""")
    check('epochs without log records are on the curve; resume and end are marked',
          seen == [[5, 'resumed', 'stopped here']] * 2, seen)
    p.press('Over time')
    axis = p.page.run('[...document.querySelectorAll(".chart text.mid")].map((t) => t.textContent)')
    check('the clock goes on after a resume', '15 s' in axis, axis)
    for name in ('metrics.jsonl', 'summary.json', 'config.resolved.ini'):
        shutil.rmtree(f'{p.folder}/only', ignore_errors=True)
        os.mkdir(f'{p.folder}/only')
        shutil.copy(f'{p.folder}/a/{name}', f'{p.folder}/only')
        p.show(f'only {name}', 'only')
    for name in ('wild', 'extreme', 'long'):
        p.show(f'folder {name}', name)
    p.says('what does not fit is told', 'and only the first', 'of 30 ranks', 'The shares of time count all of them')


def hostile(p):
    odd = '<b>x & "y"\'<img src=x onerror=alert(3)>'
    report_folders.hostile(f'{p.folder}/a', f'{p.folder}/{odd}')
    for runs in ([odd], [odd, 'a']):
        p.show(f'{len(runs)} hostile', *runs)
        p.says('names and values are shown as they are', odd, report_folders.EVIL)
        strange = p.page.run('document.scripts.length + "," + document.querySelectorAll("img, h1 b, td script").length')
        check('and are no markup', strange == '2,0', strange)


def compare(p):
    p.show('three runs', 'a', 'b', 'c')
    p.says('three runs side by side', '3 runs compared', 'The trained weights differ', 'pipeline.schedule', 'gpipe',
           'train.seed', 'samples per second', 'a, measured, step')
    check('their folders are no difference', 'run.dir' not in p.text)
    curves = 'document.querySelector(".chart").querySelectorAll("path.curve").length'
    before = p.page.run(curves)
    p.press('b')
    check('a run can be hidden', (before, p.page.run(curves)) == (6, 4), before)
    p.show('two equal runs', 'a', 'b')
    p.says('two runs of equal bits', 'equal, bit for bit')
    p.show('a run and one that did not finish', 'a', 'resumed')
    p.says('an unfinished run among them', 'Run 2 did not finish', 'The weights cannot be compared')


RESULTS = ['test accuracy', 'training accuracy', 'test loss', 'training loss', 'samples per second', 'a step',
           'bubble, measured', 'wall time', 'steps']


def unfinished(p):
    """What metrics.jsonl has is shown, also of a run without summary.json."""
    shutil.copytree(f'{p.folder}/a', f'{p.folder}/cut')
    os.remove(f'{p.folder}/cut/summary.json')
    p.show('a run and the same without summary', 'a', 'cut')
    rows = p.page.run("""[...document.querySelectorAll('.results tr')].map((r) =>
        [...r.querySelectorAll('td')].map((c) => c.lastChild ? c.lastChild.textContent : ''))""")
    cells = {r[0]: r[1:] for r in rows if r}
    check('each of its results has a value', all('\u2013' not in cells[name] and '-' not in cells[name] and
          all(cells[name]) for name in RESULTS), cells)
    check('of the test the same', all(cells[name][0] == cells[name][1] for name in RESULTS[:4]), cells)
    p.show('without summary', 'cut')
    p.says('its cards have values', 'test accuracy after epoch', 'ms a step')


def resumed_scope(p):
    """Speed and time of a step are of the same steps."""
    p.train('again', '--max-steps', '5')
    p.train('again', '--resume', '--max-steps', '0', '--lr', '0.002', '--allow', 'train.lr')
    p.show('a resumed run', 'again')
    found = re.search(r'samples per second ([\d,\u202f ]+) ([\d.,]+) ms a step, of the 25 steps', p.text)
    speed, ms = (float(re.sub(r'[^\d.]', '', x)) for x in found.groups()) if found else (0, 0)
    check('a step and the speed fit', abs(ms * speed / 32000 - 1) < 0.02, p.text[:900])
    p.says('the page says which steps it speaks of, and what was changed', 'since it was resumed',
           'Changed while it was resumed', 'train.lr', '0.002')


def colours(p):
    def background():
        return p.page.run('getComputedStyle(document.body).backgroundColor')
    p.page.media('prefers-color-scheme', 'dark')
    p.show('a dark page', 'a')
    dark = background()
    for _ in ('Light', 'Dark', 'Auto'):
        p.page.run('document.getElementById("theme").click()')
        if _ == 'Light':
            light = background()
    check('dark as the system says, light by the switch', dark == 'rgb(13, 17, 23)' and light == 'rgb(255, 255, 255)',
          dark, light)
    pdf = p.page.call('Page.printToPDF')['data']
    check('it prints', len(pdf) > 20000 and not p.page.messages, len(pdf), p.page.messages)


def main():
    program = browser.find()
    if not program:
        print('no Chromium (chromium, chromium-browser, google-chrome): pages are not looked at')
        return 77
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(browser.Browser(program)) as page:
        with open(f'{folder}/small.ini', 'w', encoding='utf-8') as f:
            f.write(CONFIG)
        p = Pages(sys.argv[1], folder, page)
        p.train('a')
        p.train('b', '--schedule', 'gpipe')
        p.train('c', '--seed', '2')
        report_folders.wild(f'{folder}/a', f'{folder}/wild')
        report_folders.extreme(f'{folder}/extreme')
        report_folders.long(f'{folder}/long')
        report_folders.resumed(f'{folder}/resumed')
        report_folders.steady(f'{folder}/steady')
        for case in (figures, timeline, many_ranks, states, hostile, compare, unfinished, resumed_scope, colours):
            case(p)
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
