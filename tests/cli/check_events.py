#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run left for other programs, read by nobody's library and held against metrics.jsonl.

    check_events.py events RUN       every record's checksums, and each scalar at its step
    check_events.py board RUN        the same by TensorBoard's own reader; 77 without it"""

import glob
import json
import re
import struct
import sys

STEP = {'loss': 'loss', 'accuracy': 'accuracy', 'lr': 'lr',
        'samples_per_second': 'samples_per_second', 'bubble': 'bubble_measured',
        'perplexity': 'perplexity'}
EPOCH = {key: key for key in ('train_loss', 'train_accuracy', 'test_loss', 'test_accuracy',
                               'train_perplexity', 'test_perplexity')}


def crc32c(data):
    """Bit by bit, as the polynomial says."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """(number, value) of a protobuf message: ints, 4 or 8 raw bytes, or a part."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(wire)
            if wire == 2:
                size, at = varint(data, at)
            assert size is not None, f'wire type {wire}'
            value, at = data[at:at + size], at + size
            assert len(value) == size, 'cut'
        yield key >> 3, value


def records(path):
    with open(path, 'rb') as f:
        data = f.read()
    at = 0
    while at < len(data):
        length, crc = struct.unpack_from('<QI', data, at)
        assert masked(data[at:at + 8]) == crc, f'checksum of the length at {at}'
        body = data[at + 12:at + 12 + length]
        assert len(body) == length, f'cut at {at}'
        crc, = struct.unpack_from('<I', data, at + 12 + length)
        assert masked(body) == crc, f'checksum of the record at {at}'
        yield body
        at += 16 + length


def scalars_of(run):
    """{tag: {step: value}} of the event files, by hand."""
    assert crc32c(b'123456789') == 0xe3069283
    files = sorted(glob.glob(f'{run}/tensorboard/*'))
    assert files and all('tfevents' in f for f in files), files
    found, times = {}, []
    for i, body in ((i, body) for f in files for i, body in enumerate(records(f))):
        event = dict(fields(body))
        times += struct.unpack('<d', event[1])
        if i == 0:
            assert event[3] == b'brain.Event:2', event
            continue
        if 7 in event:
            assert event[7] == b'\x08\x01', event
            found = {t: {s: v for s, v in at.items() if s < event[2]} for t, at in found.items()}
            continue
        for number, part in fields(event[5]):
            assert number == 1, number
            value = dict(fields(part))
            at = found.setdefault(value[1].decode(), {})
            assert event[2] not in at, f'{value[1]} twice at step {event[2]}'
            at[event[2]] = struct.unpack('<f', value[2])[0]
    assert times == sorted(times) and times[0] > 1.6e9, times
    return found


def scalars_of_board(run):
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as why:
        print(f'no tensorboard here: {why}')
        sys.exit(77)
    board = EventAccumulator(f'{run}/tensorboard')
    board.Reload()
    return {tag: {e.step: e.value for e in board.Scalars(tag)} for tag in board.Tags()['scalars']}


def metrics(run):
    with open(f'{run}/metrics.jsonl', encoding='utf-8') as f:
        return [json.loads(line) for line in f]


def near(a, b):
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def compare(found, run):
    problems, told = [], 0
    for line in metrics(run):
        names = {'step': STEP, 'epoch': EPOCH}.get(line['type'], {})
        for tag, key in names.items():
            if 'perplexity' in key and key not in line:  # of a text only
                problems += [f'{tag} of no text'] if tag in found else []
                continue
            value = found.get(tag, {}).get(line['step'])
            told += 1
            if line[key] is None or abs(line[key]) > 3.4e38:  # beyond the board's floats: no point
                problems += [f'{tag} at step {line["step"]}: {value}'] if value is not None else []
                continue
            if value is None or not near(value, line[key]):
                problems.append(f'{tag} at step {line["step"]}: {value}, expected {line[key]}')
    if told < 20:
        problems.append(f'only {told} numbers to compare')
    return problems


def main():
    what, rest = sys.argv[1], sys.argv[2:]
    problems = compare(scalars_of(*rest) if what == 'events' else scalars_of_board(*rest), rest[0])
    for line in problems:
        print(line)
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
