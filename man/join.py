# SPDX-License-Identifier: Apache-2.0
"""
Prints a manual page with what this ppcli says of itself in place of the lines of IN that begin with @:

    @SYNOPSIS            the usage line of every command
    @KEYS                the option table of configs
    @OPTIONS COMMAND     the options of a command ("common", "config": those of all, those that set keys),
    @--NAME              each with its line of help, or with the text that follows its name here,
    @END                 until this line

    join.py IN PPCLI
"""
import re
import subprocess
import sys
import textwrap


def ask(*words):
    return subprocess.run([sys.argv[2], *words], check=True, capture_output=True, text=True).stdout


def mdoc(text):
    for sign, escape in (('\\', '\\e'), ('-', '\\-'), ('~', '\\(ti'), ('^', '\\(ha')):
        text = text.replace(sign, escape)
    return [re.sub(r"^([.'])", r'\\&\1', line) for line in textwrap.wrap(text, 90)]


def usages():
    for command in re.findall(r'^  ([a-z-]+)  ', ask('help'), flags=re.M):
        words = ask('help', command).split('\n')[0].split(None, 3)[3]
        yield from ('.Nm', f'.Cm {command}')
        for optional, word in re.findall(r'\[([^]]*)\]|([^\s[]+)', words.replace('[OPTION]...', '[OPTION ...]')):
            yield f'.Op Ar {optional}' if optional else f'.Ar {word}'


def options_of(command):
    """(letter, name, argument, help) of each option."""
    text = ask('help', 'train' if command in ('common', 'config') else command)
    own, config = re.split(r'^Options:\n', text, flags=re.M)[1].partition('\nOptions that set')[::2]
    own, common = re.split(r'^(?=  -q,)', own, flags=re.M)
    part = {'common': common, 'config': config}.get(command, own)
    rows = re.findall(r'^  (?:-(\w), |    )--(\S+) ?(\S*)\s+(.*(?:\n {20,}.*)*)', part, flags=re.M)
    return [(letter, name, argument, ' '.join(line.split())) for letter, name, argument, line in rows]


def option_list(command, texts):
    yield '.Bl -tag -width Ds'
    for letter, name, argument, line in options_of(command):
        short = f'Fl {letter} , ' if letter else ''
        yield f'.It {short}Fl -{name}' + (f' Ar {argument}' if argument else '')
        yield from texts.pop(name, None) or mdoc(line)
    yield '.El'
    if texts:
        sys.exit(f'{sys.argv[1]}: ppcli {command} has no {", ".join("--" + name for name in texts)}')


def main():
    command, texts = '', {}
    with open(sys.argv[1], encoding='utf-8') as page:
        lines = page.read().split('\n')
    for line in lines[:-1]:
        word, _, rest = line.partition(' ')
        if word == '@SYNOPSIS':
            print('\n'.join(usages()))
        elif word == '@KEYS':
            print(ask('keys', '--format', 'mdoc'), end='')
        elif word == '@OPTIONS':
            command, texts = rest, {}
        elif word == '@END':
            print('\n'.join(option_list(command, texts)))
            command = ''
        elif command and word.startswith('@--'):
            texts[word[3:]] = []
        elif command:
            texts[list(texts)[-1]].append(line)
        else:
            print(line)


main()
