#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A page of `ppcli report` is well-formed, self-contained and says what it should.

    check_report.py PAGE [TEXT...]          every TEXT is in what a reader sees
    check_report.py PAGE --summary RUN      the numbers of RUN/summary.json are"""

import html.parser
import json
import re
import sys
import xml.etree.ElementTree

VOID = {'meta', 'link', 'br', 'img', 'hr', 'input'}
BYTES_MAX = 300 << 10


class Page(html.parser.HTMLParser):
    """What is visible, what is drawn, and every tag that is not where it belongs."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.problems, self.text, self.tags = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag in ('script', 'link', 'img', 'iframe', 'object', 'embed'):
            self.problems.append(f'<{tag}> in the page')
        for name, value in attrs:
            if name.startswith('on') or name in ('src', 'href'):
                self.problems.append(f'<{tag} {name}={value!r}>')
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.problems.append(f'</{tag}> at {self.getpos()}, open: {self.open[-3:]}')
        elif self.open:
            self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] not in ('style', 'script'):
            self.text.append(data)


def svgs(text):
    return re.findall(r'<svg\b.*?</svg>', text, flags=re.S)


def problems_of(text, wanted):
    page = Page()
    page.feed(text)
    page.close()
    problems = page.problems
    if page.open:
        problems.append(f'never closed: {page.open}')
    for i, picture in enumerate(svgs(text)):
        try:
            xml.etree.ElementTree.fromstring(picture)
        except xml.etree.ElementTree.ParseError as why:
            problems.append(f'picture {i}: {why}')
        if re.search(r'\b(nan|inf)\b', picture, flags=re.I):
            problems.append(f'picture {i}: a coordinate that is no number')
    outside = re.findall(r'(?:https?:)?//[^\s"\'<>)]+', text.replace('http://www.w3.org/2000/svg', ''))
    if [where for where in outside if where.startswith('http') or 'url(' in text]:
        problems.append(f'refers to {outside}')
    if len(text.encode()) > BYTES_MAX:
        problems.append(f'{len(text.encode())} bytes, at most {BYTES_MAX}')
    seen = re.sub(r'\s+', ' ', ''.join(page.text))
    for words in wanted:
        if words not in seen:
            problems.append(f'no "{words}" on the page')
    return problems


def of_summary(run):
    with open(f'{run}/summary.json', encoding='utf-8') as f:
        s = json.load(f)
    wanted = [s['weights_sha256'], f'{s["test_accuracy"] * 100:.2f} %',
              f'{s["samples_per_second"]:,.0f}', f'{s["bubble_measured"] * 100:.1f} %',
              f'{s["bubble_ideal"] * 100:.1f} % ideal', f'{s["steps"]:,} steps',
              f'{s["test_loss"]:.4g}', f'{s["train_loss"]:.4g}']
    if 'bubble_predicted' in s:
        wanted.append(f'{s["bubble_predicted"] * 100:.1f} % predicted')
    return wanted + [f'{rank["busy"] * 100:.1f} %' for rank in s['ranks']]


def main():
    with open(sys.argv[1], encoding='utf-8') as f:
        text = f.read()
    wanted = sys.argv[2:]
    if wanted[:1] == ['--summary']:
        wanted = of_summary(wanted[1]) + wanted[2:]
    problems = problems_of(text, wanted)
    for line in problems:
        print(line)
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
