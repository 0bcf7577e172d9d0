#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules about the sources that no compiler knows. One rule a run:

    check_sources.py ROOT layers|spdx|switches|exits|statics|concepts|const_config|architecture|words|names

Prints every place that breaks the rule as file:line and exits 1 when there is one."""

import os
import re
import subprocess
import sys

# A module includes itself and modules of lower layers, never those of its own layer.
LAYER = {
    'base': 0,
    'conf': 1, 'sched': 1,
    'dev': 2, 'sim': 2,
    'nn': 3, 'comm': 3, 'data': 3,
    'pipe': 4, 'ckpt': 4,
    'measure': 5, 'runlog': 5,
    'plan': 6,
    'cluster': 7,
    'watch': 8,
    'train': 9, 'show': 9,
    'bench': 10,
    'cli': 11,
}

SOURCE = ('.c', '.h', '.def', '.cu', '.cpp')
SKIP_FOLDERS = {'.git', '__pycache__', 'data', 'configs'}


def tracked(root):
    """What git has of root: a run folder in the tree is no source. None where there is no git."""
    try:
        done = subprocess.run(['git', '-c', 'safe.directory=*', '-C', root, 'ls-files', '-z'], capture_output=True,
                              text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return set(done.stdout.split('\0'))


def files(root, suffixes, below=''):
    """Tracked paths under root/below with one of the suffixes, relative to root; without git all
    that are there, build folders left out."""
    known = tracked(root)
    for folder, names, here in os.walk(os.path.join(root, below)):
        names[:] = sorted(n for n in names
                          if n not in SKIP_FOLDERS or os.path.relpath(folder, root) in ('src', 'include/ppcli'))
        if os.path.exists(os.path.join(folder, 'build.ninja')):
            names[:] = []
            continue
        for name in sorted(here):
            path = os.path.relpath(os.path.join(folder, name), root)
            if name.endswith(suffixes) and (known is None or path in known):
                yield path


def read(root, path):
    with open(os.path.join(root, path), encoding='utf-8') as f:
        return f.read()


def without_comments(text, strings=True):
    """The text with comments (and strings) blanked; line numbers stay."""
    def blank(match):
        found = match.group(0)
        if found.startswith('/'):
            return re.sub(r'[^\n]', ' ', found)
        return '""' if strings else found
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def owner_of(root, header):
    """The module of a public header, which is its folder."""
    module = header.split('/')[0]
    return module if '/' in header and module in LAYER else None


HEADERS_MAX = 3  # the contract of a module


def layers(root):
    """A module includes only modules of lower layers; so two modules of one layer cannot know each other."""
    problems = [f'src/{module}:1: a module of the rule that does not exist' for module in LAYER
                if not os.path.isdir(os.path.join(root, 'src', module))]
    count = {}
    for path in files(root, SOURCE, 'include'):
        module = owner_of(root, os.path.relpath(path, os.path.join('include', 'ppcli')))
        if module is None:
            problems.append(f'{path}:1: a public header lies in include/ppcli/MODULE')
            continue
        count[module] = count.get(module, 0) + path.endswith('.h')
        problems += layer_problems(root, path, module)
    problems += [f'include/ppcli/{module}:1: {n} headers; the contract of a module has {HEADERS_MAX} at most'
                 for module, n in count.items() if n > HEADERS_MAX]
    for path in files(root, SOURCE, 'src'):
        module = path.split(os.sep)[1]
        if module not in LAYER:
            problems.append(f'{path}:1: unknown module {module}')
            continue
        problems += layer_problems(root, path, module)
    return problems


def layer_problems(root, path, module):
    problems = []
    text = without_comments(read(root, path), strings=False)
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
        if not found:
            continue
        word = found.group(1)
        where = f'{path}:{number}'
        if word.startswith('ppcli/'):
            owner = owner_of(root, word[len('ppcli/'):])
            if owner is None:
                problems.append(f'{where}: {word} belongs to no module')
            elif owner != module and LAYER[owner] >= LAYER[module]:
                problems.append(f'{where}: {module} (layer {LAYER[module]}) includes {word} of '
                                f'{owner} (layer {LAYER[owner]})')
        elif '..' in word.split('/'):
            if not os.path.normpath(os.path.join(os.path.dirname(path), word)).startswith(
                    os.path.join('src', module) + os.sep):
                problems.append(f'{where}: {word} reaches into another module')
    return problems


def spdx(root):
    problems = []
    suffixes = SOURCE + ('.py', '.sh', '.bats', 'meson.build', 'meson_options.txt', '.1', '.5',
                         '.5.in', os.path.join('.ci', 'run'))
    for path in files(root, suffixes):
        head = '\n'.join(read(root, path).splitlines()[:3])
        if 'SPDX-License-Identifier: Apache-2.0' not in head:
            problems.append(f'{path}:1: no SPDX line at the top')
    return problems


def switches(root):
    """No conditionals for optional parts outside their files; no foreign types in contracts."""
    problems = []
    own = re.compile(r'^src/(dev/cuda|comm/(mpi|nccl))')
    for path in list(files(root, SOURCE, 'src')) + list(files(root, SOURCE, 'include')):
        if own.match(path):
            continue
        text = without_comments(read(root, path))
        for number, line in enumerate(text.splitlines(), 1):
            words = re.match(r'\s*#\s*(?:if|ifdef|ifndef|elif)\b(.*)', line)
            if words and re.search(r'CUDA|NCCL|MPI', re.sub(r'\bPPCLI_\w+_H\b', '', words.group(1))):
                problems.append(f'{path}:{number}: {line.strip()}')
            if re.search(r'\bcpu_set_t\b', line) and not re.match(r'src/base/thread\.c', path):
                problems.append(f'{path}:{number}: a set that ends at 1,024 processors; use struct pp_cpu_mask')
            foreign = re.match(r'\s*#\s*include\s*<(mpi|cuda|cublas|nccl|ini)[\w/]*\.h>', line)
            if foreign and path.startswith('include'):
                problems.append(f'{path}:{number}: a contract shows a foreign type')
    return problems


def exits(root):
    """Only cli/main.c ends the program; base/err.c may abort on a broken invariant. What a fork made ends
    with _exit, never by a signal to itself."""
    problems = []
    for path in list(files(root, SOURCE, 'src')) + list(files(root, SOURCE, 'include')):
        if path == os.path.join('src', 'cli', 'main.c'):
            continue
        text = without_comments(read(root, path))
        for number, line in enumerate(text.splitlines(), 1):
            ends = r'(?<![\w.>])(exit|_Exit|quick_exit)\s*\(|\braise\s*\(\s*SIGKILL' if 'fork()' in text else \
                r'(?<![\w.>])(_?exit|_Exit|quick_exit)\s*\('
            if re.search(ends, line):
                problems.append(f'{path}:{number}: {line.strip()}')
            if re.search(r'^\s*abort\(\);', line) and path != 'src/base/err.c':
                problems.append(f'{path}:{number}: {line.strip()}')
    return problems


def statics(root):
    """Threads share what is static, and ranks are threads: outside cli/ and cluster/, which have one, no
    function keeps a variable, unless each thread has its own."""
    problems = []
    for path in files(root, ('.c', '.h'), 'src'):
        if path.split(os.sep)[1] in ('cli', 'cluster'):
            continue
        for number, line in enumerate(without_comments(read(root, path)).splitlines(), 1):
            if re.match(r'\s+static (?!.*(\bconst\b|_Thread_local|pthread_once_t))', line):
                problems.append(f'{path}:{number}: {line.strip()}')
    return problems


# What other modules can call and name. These numbers only come down: before a new function or type, look for the one
# that already means the same.
PUBLIC_FUNCTIONS_MAX = 868
PUBLIC_STRUCTS_MAX = 265


def concepts(root):
    """Public functions and public structs of include/ppcli: no more than the limits above."""
    functions, structs = set(), set()
    for path in files(root, ('.h',), 'include'):
        text = without_comments(read(root, path))
        functions |= set(re.findall(r'\b(pp_[a-z0-9_]+)\(', text))
        structs |= set(re.findall(r'^struct (pp_[a-z0-9_]+) \{', text, flags=re.M))
    print(f'{len(functions)} public functions, {len(structs)} public structs')
    return [f'include/ppcli:1: {len(found)} public {kind}; at most {most}: keep what one module uses in that module'
            for kind, found, most in (('functions', functions, PUBLIC_FUNCTIONS_MAX),
                                      ('structs', structs, PUBLIC_STRUCTS_MAX)) if len(found) > most]


def architecture(root):
    """docs/take-part/architecture.md: each listed function stands in its file, each module is in its table."""
    problems, listed = [], 0
    page = 'docs/take-part/architecture.md'
    text = read(root, page)
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"\d+\. `(\w+)` in `((?:src|include)/[\w./]+)`", line)
        if not found:
            continue
        listed += 1
        name, path = found.groups()
        if not os.path.exists(os.path.join(root, path)):
            problems.append(f'{page}:{number}: no file {path}')
        elif not re.search(rf'^[a-z].*\b{name}\(', without_comments(read(root, path)), flags=re.M):
            problems.append(f'{page}:{number}: {path} has no function {name}')
    if listed < 10:
        problems.append(f'{page}:1: only {listed} functions are listed')
    for module, layer in LAYER.items():
        if not re.search(rf'^\| {layer} \| `{module}` \|', text, flags=re.M):
            problems.append(f'{page}:1: the table of modules has no {module} in layer {layer}')
    return problems


# Words of messages and help that made readers stumble.
RIDDLES = re.compile(r'hand-over|says nothing|means nothing|nobody|once more|go on with|goes on|gets on|there twice'
                     r'|(?<!there )is no (?!longer)|for ever\b|stands (?!for)')


def words(root):
    """Messages and help in plain words: no riddle of the list above in a string."""
    problems = []
    for path in files(root, ('.c', '.h', '.def'), 'src'):
        text = re.sub(r'/\*.*?\*/', lambda m: '\n' * m.group().count('\n'), read(root, path), flags=re.S)
        for number, line in enumerate(text.splitlines(), 1):
            for string in re.findall(r'"((?:\\.|[^"\\])*)"', line):
                found = RIDDLES.search(string)
                if found and not string.startswith('--'):
                    problems.append(f'{path}:{number}: "{found.group()}" in a message; say it in the field\'s words')
    return problems


# How many static names may stand in more than two files. It only comes down.
SHARED_NAMES_MAX = 30


def shared_names(root):
    """Static functions in three or more files, but for entries of tables: {name: files}."""
    files_of = {}
    for path in files(root, ('.c', '.h'), 'src'):
        text = without_comments(read(root, path))
        for name in set(re.findall(r'^static (?:[\w\s*]|__attribute__\(\(.*?\)\))*?\b(\w+)\(', text, flags=re.M)):
            if not re.search(rf'\.{name} = {name}\b', text) and not re.match(r'src/dev/(plain|cpu|cuda)/', path):
                files_of.setdefault(name, []).append(path)
    return {name: paths for name, paths in files_of.items() if len(paths) > 2}


def names(root):
    """A static function is found by one search: verb and object, its name in one file or two."""
    shared = shared_names(root)
    if len(shared) <= SHARED_NAMES_MAX:
        return []
    return [f'{paths[0]}:1: {name}() is also in {", ".join(paths[1:])}: say verb and object'
            for name, paths in sorted(shared.items(), key=lambda item: len(item[1]))]


def const_config(root):
    """A config is what somebody wrote: no assignment to one outside conf, no copy of one for a question."""
    sections = r'(?:data|model|pipeline|train|checkpoint|run)\.\w+(?:\.\w+)*(?:\[[^]]*\])?'
    assigns = re.compile(r'(?:->|\b(?:cfg|config|now|copy|own)\.)' + sections + r'\s*(?:[-+*/|&]?=(?!=)|\+\+|--)')
    fills = re.compile(r'\b(?:snprintf|strcpy|memcpy|memset)\(\(?\*?\w*(?:->|\.)*\w*\)?(?:->|\.)' + sections + r',')
    loses = re.compile(r'(?:->|\.)source = NULL')
    problems = []
    for path in list(files(root, ('.c', '.h'), 'src')):
        if path.split(os.sep)[1] == 'conf':
            continue
        for number, line in enumerate(without_comments(read(root, path)).splitlines(), 1):
            if assigns.search(line) or fills.search(line) or loses.search(line):
                problems.append(f'{path}:{number}: {line.strip()}: make a struct pp_division, or have conf choose')
    return problems


RULES = {'concepts': concepts, 'const_config': const_config, 'architecture': architecture, 'layers': layers, 'spdx': spdx, 'switches': switches,
         'exits': exits, 'statics': statics, 'words': words, 'names': names}


def main():
    root, rule = sys.argv[1], sys.argv[2]
    problems = RULES[rule](root)
    for line in problems:
        print(line)
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
