#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The JSON of ppcli has the keys and types that docs/look-up/json*.md list, and no others.

    json_keys.py PPCLI SOURCE_DIR PRINT_JSON_KEYS [--write]

PRINT_JSON_KEYS prints the tables of what columns describe (src/show/columns.c); the pages must have these, and
--write puts them there.
A key that may be absent (`name?`) and does not occur in what is made here must at least stand in src."""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile

PPCLI, SOURCE, PRINT = (os.path.abspath(word) for word in sys.argv[1:4])
WORDS = {'objects': 'list', 'object': 'object', 'number': 'number', 'text': 'text', 'null': 'null', 'flag': 'flag', 'numbers': 'list of number', 'texts': 'list of text'}
failures, seen, versions = [], set(), {}


def fail(*words):
    failures.append(' '.join(words))


def read_tables():
    """{section, or "section: what" of "keys of what": {path: (types, whether it may be absent)}}"""
    tables = {}
    for page in sorted(glob.glob(f'{SOURCE}/docs/look-up/json*.md')):
        section = table = None
        with open(page, encoding='utf-8') as f:
            for line in f:
                cells = [cell.strip() for cell in line.split('|')[1:-1]]
                version = re.search(r'[Ss]chema (\d+)', line)
                if line.startswith('## '):
                    section = line[3:].strip()
                elif version and not cells:
                    number = int(version[1])
                elif cells and cells[0].startswith('keys'):
                    name = section + (': ' + cells[0][8:] if cells[0][4:] else '')
                    table = tables.setdefault(name, {})
                    versions[name] = number
                elif cells and '`' in cells[0]:
                    read_row(table, re.findall(r'`([^`]*)`', cells[0]), cells[1])
    return tables


def compare_pages():
    """The rows of the pages are those that the columns print."""
    printed, rows = {}, []
    for line in subprocess.run([PRINT], capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith('|'):
            rows.append(line)
        else:
            name, _, schema = line.partition('\t')
            rows = printed.setdefault(name, [])
            printed[name, 'schema'] = int(schema)
    for page in sorted(glob.glob(f'{SOURCE}/docs/look-up/json*.md')):
        with open(page, encoding='utf-8') as f:
            old = f.read().splitlines()
        new, section, wanted = [], '', None
        for line in old:
            section = line[3:] if line.startswith('## ') else section
            if line.startswith('| keys'):
                name = line.split('|')[1].strip()[8:]
                wanted = printed.pop(section + (': ' + name if name else ''), None)
            if wanted is None or not line.startswith('| `'):
                new.append(line)
            if wanted and line.startswith('|---'):
                new += wanted
            wanted = wanted if line.startswith('|') else None
        if new != old:
            fail(f'{page}: its tables are not those of the columns: run this with --write')
        if new != old and '--write' in sys.argv:
            with open(page, 'w', encoding='utf-8') as f:
                f.write('\n'.join(new) + '\n')
    for name in [key for key in printed if isinstance(key, str)]:
        fail(f'{name}: no table in docs/look-up')
    return printed


def read_row(table, names, kind):
    prefix = ''
    for name in names:
        if name.endswith('.'):
            prefix += name
            continue
        path = prefix + name
        if kind.startswith('as '):
            like, optional, path = kind[4:-1], '?' in path, path.replace('?', '')
            table[path] = ({'list' if '[]' in path else 'object'}, optional)
            for other, entry in list(table.items()):
                if other.startswith(like + '.') or other.startswith(like + '?.'):
                    table[path + other[len(like):]] = entry
            continue
        types = {WORDS[word] for word in kind.replace('true or false', 'flag').split(' or ')}
        steps = path.split('.')
        for k in range(1, len(steps)):  # the objects on the way
            above = '.'.join(steps[:k])
            table.setdefault(above.replace('?', ''), ({'list' if '[]' in steps[k - 1] else 'object'}, '?' in steps[k - 1] or steps[k] == '*'))
        table[path.replace('?', '')] = (types, path.endswith('?'))


def kind_of(value):
    if isinstance(value, list):
        inner = {kind_of(v) for v in value}
        return 'list' if not inner or inner == {'object'} else 'list of ' + ' or '.join(sorted(inner))
    return {bool: 'flag', int: 'number', float: 'number', str: 'text', dict: 'object', type(None): 'null'}[type(value)]


def compare(name, table, value, path=''):
    for key, inner in value.items():
        at, kind = path + key, kind_of(inner)
        listed = at + '[]' if at + '[]' in table else at
        if listed not in table and path + '*' in table:
            listed = path + '*'
        if listed not in table:
            fail(f'{name}: {at} ({kind}) is not documented')
            continue
        seen.add((name, listed))
        types = table[listed][0]
        if kind not in types and not (kind == 'list' and any(t.startswith('list') for t in types)):
            fail(f'{name}: {at} is {kind}, documented as {" or ".join(sorted(types))}')
        for item in inner if kind == 'list' else [inner] if kind == 'object' else []:
            compare(name, table, item, (at if kind == 'object' else at + '[]') + '.')
    for listed, (_, absent) in table.items():
        own = listed[len(path):]
        if listed.startswith(path) and not re.search(r'\.|\*', own) and not absent and own.replace('[]', '') not in value:
            fail(f'{name}: {listed} is absent')


def ask(*words, codes=(0,)):
    done = subprocess.run([PPCLI, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        fail(f'{" ".join(words)}: exit code {done.returncode}: {done.stderr}')
        return {}
    return json.loads(done.stdout) if done.stdout.startswith(('{', '[')) else {}


def write(name, text):
    with open(name, 'w', encoding='utf-8') as f:
        f.write(text)


def documents():
    """(section, document) of everything."""
    fmt = ('--format', 'json')
    shape = ('plan', '--schedule', '1f1b', '--stages', '2', '--microbatches', '4')
    write('net.ini', '[data]\ndataset = synthetic\ntrain_samples = 320\ntest_samples = 50\n[model]\nsizes = 20 16*3 5\n'
          '[pipeline]\nstages = 2\nmicrobatches = 4\n[train]\nepochs = 2\nbatch_size = 32\n[run]\nlog_every = 2\n')
    write('t.txt', 'to be or not to be, that is the question\n' * 40)
    write('gpt.ini', '[data]\ndataset = text\ntrain_file = t.txt\n[model]\ntype = gpt\nn_layer = 2\nn_head = 2\nn_embd = 8\n'
          'block_size = 8\ntie_weights = on\n[pipeline]\nstages = 2\nmicrobatches = 2\n[train]\nbatch_size = 8\nmax_steps = 4\neval_interval = 4\n')
    write('bad.csv', '0F0,0B0\n1B0,1F0\n')
    for name in ('net', 'gpt'):
        ask('train', f'{name}.ini', '--dir', name, '-q')
    ask('train', 'net.ini', '--dir', 'net', '-q', '--resume', '--epochs', '3', '--lr', '0.02', '--allow', 'train.lr')
    yield from (('plan', ask(*words, *fmt)) for words in (shape, ('plan', 'net.ini'), (*shape[:2], 'zb-v', *shape[3:], '--cost-f', '1,2')))
    write('t.csv', subprocess.run([PPCLI, *shape, '--format', 'csv'], capture_output=True, text=True, check=True).stdout)
    for table, more in (('t.csv', ('gpipe', '--memory-cap', '2')), ('t.csv', ('zb-h1',)), ('bad.csv', ('gpipe',))):
        yield 'mark', ask('mark', table, '--par', *more, *fmt, codes=(0, 1))
    yield 'tune', ask('tune', 'net.ini', *fmt)
    yield 'tune', ask('tune', 'net.ini', '--check', '1', *fmt)
    yield 'estimate', ask('estimate', 'net.ini', '--machine', 'laptop', *fmt)
    yield 'profile', ask('profile', 'net', *fmt)
    yield 'profile: --against', ask('profile', 'net', '--against', 'net', *fmt)
    quick = ('--time', '0.01', '--repeat', '2')
    yield 'bench', ask('bench', 'net.ini', *quick, '--stages', '1,2', '--batch-size', '16,32', *fmt)
    yield 'bench', ask('bench', 'net.ini', *quick, '--no-ceilings', '--stages', '2,9', *fmt)
    for what, words in (('--handover', ()), ('--ops', ('net.ini',))):
        yield f'bench: {what}', ask('bench', what, *words, '--time', '0.01', *fmt)
    for name in ('net', 'gpt'):
        yield 'eval', ask('eval', name, *fmt)
        yield 'explain', ask('explain', f'{name}.ini', *fmt)
        yield 'inspect', ask('inspect', name, *fmt)
        yield 'diagnose', ask('diagnose', name, *fmt)
        with open(f'{name}/summary.json', encoding='utf-8') as f:
            yield 'summary.json', json.load(f)
        with open(f'{name}/metrics.jsonl', encoding='utf-8') as f:
            for record in map(json.loads, f):
                if record['type'] in ('header', 'step', 'epoch'):
                    yield 'metrics.jsonl: ' + record['type'], record
        with open(f'{name}/timeline.json', encoding='utf-8') as f:
            yield 'timeline.json: args', next(e['args'] for e in json.load(f) if e.get('name') == 'ppcli')
    yield 'explain', ask('explain', 'net.ini', '--set', 'pipeline.recompute=all', *fmt)
    program = f'{SOURCE}/tests/golden/pt2/torch-2.15.0.pt2'
    yield 'explain: program', ask('explain', program, *fmt, codes=(0, 78))
    yield 'keys', ask('keys', *fmt)
    yield 'keys: operators', ask('keys', '--operators', *fmt)
    yield 'env', ask('env', *fmt)
    yield 'env: hosts', ask('env', '--hosts', 'localhost', *fmt, codes=(0, 1, 69, 78))


def main():
    printed = compare_pages()
    tables = read_tables()
    failures.extend(f'{name}: schema {versions[name]}, printed as {printed[name, "schema"]}'
                    for name in versions if printed.get((name, 'schema'), versions[name]) != versions[name])
    found = set()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, value in documents():
            found.add(name)
            if name not in tables:
                fail(f'{name}: no table')
            elif value:
                if value.get('schema', versions[name]) != versions[name]:
                    fail(f'{name}: schema {value["schema"]}, documented as {versions[name]}')
                compare(name, tables[name], value)
        os.chdir('/')
    failures.extend(f'{name}: no document was made' for name in tables if name not in found)
    sources = ''
    for path in glob.glob(f'{SOURCE}/src/**/*.[ch]', recursive=True):
        with open(path, encoding='utf-8') as f:
            sources += f.read()
    rare = [(name, path) for name, table in tables.items() for path in table if (name, path) not in seen]
    failures.extend(f'{name}: {path} is documented and stands nowhere in src' for name, path in rare
                    if not path.endswith('*') and f'"{re.split(r"[.]", path.replace("[]", ""))[-1]}"' not in sources)
    for line in sorted(set(failures)):
        print(line)
    print(f'{sum(map(len, tables.values()))} keys in {len(tables)} tables, {len(seen)} of them in documents, {len(set(failures))} wrong')
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
