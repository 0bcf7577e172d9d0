#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Program, manual pages and README agree. One check a run:

    check_docs.py commands|options|keys|values|examples|links ROOT PPCLI [PAGE1 PAGE5]"""

import json
import os
import re
import subprocess
import sys


def ask(ppcli, *words):
    return subprocess.run([ppcli, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def read(path):
    with open(path, encoding='utf-8') as f:
        return f.read()


def commands_of(ppcli):
    found = re.findall(r'^  ([a-z-]+)  ', ask(ppcli, 'help'), flags=re.M)
    assert len(found) >= 5, found
    return found


def options_of(ppcli, command):
    """Long options of one command's help, as {name: argument or ''}."""
    text = ask(ppcli, command, '--help')
    text = text[text.index('Options:'):]
    return dict(re.findall(r'^ +(?:-\w, )?--([a-z0-9-]+)(?: (\S+))?', text, flags=re.M))




def commands(root, ppcli, page1, _page5):
    """Every command is in ppcli(1) (synopsis and text) and in docs/look-up/commands.md, and no other is."""
    problems = []
    text = read(page1)
    readme = read(f'{root}/README.md')
    table = read(f'{root}/docs/look-up/commands.md')
    names = commands_of(ppcli)
    for name in names:
        if f'\n.Cm {name}\n' not in text.split('.Sh DESCRIPTION')[0]:
            problems.append(f'ppcli.1: no {name} in the synopsis')
        if not re.search(rf'^\.It Cm {name}\b', text, flags=re.M):
            problems.append(f'ppcli.1: no .It for {name}')
        if not re.search(rf'ppcli {name}\b', table):
            problems.append(f'docs/look-up/commands.md: no "ppcli {name}"')
    section = text.split('.Sh COMMANDS')[1].split('.Sh OPTIONS')[0]
    for name in re.findall(r'^\.It Cm ([a-z-]+)', section, flags=re.M):
        if name not in names:
            problems.append(f'ppcli.1: {name} is no command')
    for name in re.findall(r'(?<![\w/-])ppcli ([a-z][a-z-]+)', '\n'.join(
            re.findall(r'^    .*$|`[^`]*`', readme + table, flags=re.M))):
        if name not in names:
            problems.append(f'README.md: "ppcli {name}" is no command')
    return problems


def options(root, ppcli, page1, _page5):
    """Every option is in ppcli(1) and every option of ppcli(1) and the README exists."""
    problems = []
    text = read(page1)
    known = {'version'}
    for command in commands_of(ppcli):
        for name in options_of(ppcli, command):
            known.add(name)
            if not re.search(rf'^\.It (Fl \w , )?Fl -{name}\b', text, flags=re.M):
                problems.append(f'ppcli.1: no --{name} of {command}')
    for name in set(re.findall(r'Fl -([a-z0-9-]+)', text)) - known:
        problems.append(f'ppcli.1: --{name} is no option')
    for line in re.findall(r'^.*ppcli.*$', read(f'{root}/README.md'), flags=re.M):
        for name in re.findall(r'(?<=\s)--([a-z0-9-]+)', line.split('ppcli', 1)[1]):
            if name not in known:
                problems.append(f'README.md: --{name} is no option')
    return problems


def keys(root, ppcli, page1, page5):
    """Every key is in ppcli.ini(5) and every key that a page or the README names exists."""
    problems = []
    text = read(page5).replace('\\-', '-')
    known = ask(ppcli, 'keys', '--format', 'list').split()
    assert len(known) >= 20, known
    for name in known:
        section, key = name.split('.')
        part = text.split(f'.Ss [{section}]')
        if len(part) != 2 or not re.search(rf'^\.It Cm {key}$', part[1].split('.Ss ')[0],
                                           flags=re.M):
            problems.append(f'ppcli.ini.5: no {name}')
    sections = '|'.join(sorted({name.split('.')[0] for name in known}))
    for path in (page1, f'{root}/README.md'):
        for name in re.findall(rf'(?<![\w./-])((?:{sections})\.[a-z_]+)(?![\w./-])', read(path)):
            if name not in known and not name.endswith(('.sh', '.ini', '.py', '.c', '.h', '.csv',
                                                              '.safetensors', '.gguf', '.onnx')):
                problems.append(f'{path}: {name} is no key')
    return problems


def values(_root, ppcli, _page1, _page5):
    """The choices that a help line spells out are those of its key."""
    problems = []
    schema = {key['name']: key for key in json.loads(ask(ppcli, 'keys', '--json'))['keys']}
    checked = 0
    text = ask(ppcli, 'train', '--help')
    for name, arg, key in re.findall(r'--([a-z-]+) (\S+)\s+[^\n(]*\(([a-z]+\.[a-z_]+)\)', text):
        if key not in schema:
            problems.append(f'--{name} sets {key}, which is no key')
        elif '|' in arg:
            checked += 1
            if arg.split('|') != schema[key].get('values'):
                problems.append(f'--{name} says {arg}, {key} has {schema[key].get("values")}')
    if checked < 2:
        problems.append(f'only {checked} lists of choices found in the help of train')
    return problems


def pages_of(root):
    for folder, _, names in os.walk(root):
        if any(part in folder for part in ('/.', '/build', '/tests')):
            continue
        for name in names:
            if name.endswith(('.md', '.txt')) or name == 'ppcli.1.in':
                yield os.path.join(folder, name)


def examples(root, ppcli, _page1, _page5):
    """A command that a page shows for a config that comes with ppcli is no mistake in that config."""
    problems = []
    known = options_of(ppcli, 'train')
    shown = re.compile(r'ppcli (train|eval|explain|slurm|plan) ([\w-]+\.ini)((?: (?! |#)[^\s`|&>;)]+)*)')
    checked = set()
    for path in pages_of(root):
        for command, config, rest in shown.findall(read(path)):
            if not os.path.exists(f'{root}/configs/{config}'):
                continue
            words = []
            for option, value in re.findall(r' --([a-z0-9-]+)(?:[ =]([^\s-]\S*))?', rest):
                if option in known and value and option not in ('format', 'expect') and '$' not in value:
                    words += [f'--{option}', value.strip('\'"')]
            if (config, *words) in checked:
                continue
            checked.add((config, *words))
            run = subprocess.run([ppcli, 'explain', config, *words], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True, check=False)
            if run.returncode not in (0, 66):
                problems.append(f'{path}: ppcli {command} {config}{rest}: {run.stderr}')
    assert len(checked) >= 10, checked
    return problems


PAGE_LINES = 150


def anchors_of(text):
    """The names that a code host gives to headings."""
    return {re.sub(r'[^\w -]', '', head.lower()).replace(' ', '-') for head in re.findall(r'^#+ (.*)$', text, flags=re.M)}


def links(root, _ppcli, _page1, _page5):
    """Every link of a page leads somewhere, every page is reached from docs/README.md and is short."""
    problems = []
    pages = [f'{root}/README.md'] + sorted(path for path in pages_of(f'{root}/docs') if path.endswith('.md'))
    targets, n = {}, 0
    for page in pages:
        text = read(page)
        if len(text.splitlines()) > PAGE_LINES:
            problems.append(f'{page}: {len(text.splitlines())} lines, at most {PAGE_LINES}')
        for link in re.findall(r'\]\(([^)\s]+)\)', re.sub(r'```.*?```', '', text, flags=re.S)):
            if re.match(r'[a-z]+:', link):
                continue
            path, _, anchor = link.partition('#')
            path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            targets.setdefault(page, set()).add(path)
            n += 1
            if not os.path.exists(path):
                problems.append(f'{page}: {link} leads nowhere')
            elif anchor and path.endswith('.md') and anchor not in anchors_of(read(path)):
                problems.append(f'{page}: {link}: no such heading')
    index = set.union(*(targets[f'{root}/docs/{folder}README.md'] for folder in ('', 'results/', 'course/')))
    for page in pages[1:]:
        if page not in index and not page.endswith('docs/README.md'):
            problems.append(f'docs/README.md: no link to {page}')
    assert n >= 40, n
    return problems


CHECKS = {'commands': commands, 'options': options, 'keys': keys, 'values': values, 'examples': examples,
          'links': links}


def main():
    name, root, ppcli = sys.argv[1:4]
    problems = CHECKS[name](root, ppcli, *sys.argv[4:])
    for line in problems:
        print(line)
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
