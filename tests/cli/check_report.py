#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A page of `ppcli report` stands alone and holds the data that it should.

    check_report.py PAGE [EXPRESSION...]

Every EXPRESSION is Python over `runs`, the list of runs in the page, and `run`, its first."""

import html.parser
import json
import re
import sys

BYTES_MAX = 400 << 10


class Page(html.parser.HTMLParser):
    """The scripts, and whatever would be fetched from elsewhere."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.scripts, self.problems = [], []

    def handle_starttag(self, tag, attrs):
        if tag == 'script':
            self.scripts.append('')
        if tag in ('img', 'iframe', 'object', 'embed'):
            self.problems.append(f'<{tag}> in the page')
        for name, value in attrs:
            if name.startswith('on') or name in ('src', 'href') and value != 'data:,':
                self.problems.append(f'<{tag} {name}={value!r}>')

    def handle_data(self, data):
        if self.lasttag == 'script' and data.strip():
            self.scripts[-1] += data


def main():
    with open(sys.argv[1], encoding='utf-8') as f:
        text = f.read()
    page = Page()
    page.feed(text)
    page.close()
    problems = page.problems
    if len(page.scripts) != 2 or '<' in page.scripts[0] or text.count('</script') != 2:
        problems.append('the data is not one script, the program another')
    data = json.loads(page.scripts[0], parse_constant=lambda word: problems.append(f'{word} in the data'))
    outside = [url for url in re.findall(r'https?://[^\s"\'<>)]+', text.replace(page.scripts[0], ''))
               if url != 'http://www.w3.org/2000/svg']
    if outside:
        problems.append(f'refers to {outside}')
    if len(text.encode()) > BYTES_MAX:
        problems.append(f'{len(text.encode())} bytes, at most {BYTES_MAX}')
    names = {'runs': data['runs'], 'run': data['runs'][0]}
    for expression in sys.argv[2:]:
        try:
            if not eval(expression, names):
                problems.append(f'not true: {expression}')
        except (KeyError, IndexError, TypeError) as why:
            problems.append(f'{expression}: {why!r}')
    for line in problems:
        print(line)
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
