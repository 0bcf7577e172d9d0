#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The tables of docs/results/2026-11-23-papers.md: what `ppcli plan` predicts beside what papers have measured.

    experiments/planning-tables.py [PPCLI]      default: build/ppcli; prints Markdown

Numbers of papers are as printed there:
  ZB   Qi, Wan, Huang, Lin, "Zero bubble pipeline parallelism", 2023, arXiv 2401.10241 and ICLR 2024
  CM   Qi, Wan, Amar, Lin, "Pipeline parallelism with controllable memory", 2024, arXiv 2405.15362
"""
import json
import subprocess
import sys

PPCLI = sys.argv[1] if len(sys.argv) > 1 else 'build/ppcli'

# ZB: model -> stages, samples of a micro-batch (table 3), chunks of 1F1B-I (a layer each: table 3's
# layers and the two that the ends lack), and for each number of micro-batches T_F, T_B, T_W, T_comm
# in ms (profiled with ZB-2p: table 6 of ICLR, 9 of arXiv).
PROFILE = {
    '1.5B': (8, 6, 3, {24: (18.522, 18.086, 9.337, 0.601), 32: (18.513, 18.086, 9.331, 0.626),
                       64: (18.546, 18.097, 9.321, 0.762)}),
    '6.2B': (8, 3, 4, {24: (29.718, 29.444, 19.927, 0.527), 32: (29.802, 29.428, 19.530, 0.577),
                       64: (29.935, 29.621, 19.388, 0.535)}),
    '14.6B': (16, 1, 3, {48: (11.347, 11.248, 8.132, 0.377), 64: (11.307, 11.254, 8.101, 0.379),
                         128: (11.325, 11.308, 8.109, 0.378)}),
    '28.3B': (32, 1, 2, {96: (10.419, 10.207, 7.715, 0.408), 128: (10.408, 10.204, 7.703, 0.408),
                         256: (10.402, 10.248, 7.698, 0.460)}),
}

# ZB table 4: samples per GPU and second, for the micro-batches of PROFILE in that order.
MEASURED = {
    '1F1B': {'1.5B': (11.8, 12.5, 13.6), '6.2B': (3.50, 3.70, 4.03), '14.6B': (1.40, 1.49, 1.64),
             '28.3B': (0.76, 0.80, 0.88)},
    '1F1B-I': {'1.5B': (13.1, 13.4, 13.9), '6.2B': (4.01, 4.08, 4.19), '14.6B': (1.54, 1.59, 1.66),
               '28.3B': (0.82, 0.85, 0.90)},
    'ZB-1p': {'1.5B': (12.9, 13.4, 14.2), '6.2B': (3.88, 4.00, 4.20), '14.6B': (1.61, 1.67, 1.76),
              '28.3B': (0.87, 0.90, 0.96)},
    'ZB-2p': {'1.5B': (14.5, 14.8, 14.9), '6.2B': (4.32, 4.35, 4.39), '14.6B': (1.81, 1.83, 1.85),
              '28.3B': (0.99, 1.00, 1.00)},
}

# ZB table 5: bubble rates that the authors computed from the same profile.
RATES = {
    '1F1B': {'1.5B': (.2431, .1985, .1240), '6.2B': (.2347, .1898, .1091),
             '14.6B': (.2552, .2082, .1251), '28.3B': (.2646, .2168, .1352)},
    '1F1B-I': {'1.5B': (.1055, .0818, .0443), '6.2B': (.0808, .0628, .0320),
               '14.6B': (.1104, .0852, .0445), '28.3B': (.1493, .1164, .0624)},
    'ZB-H1': {'1.5B': (.1585, .1242, .0674), '6.2B': (.1323, .1045, .0554),
              '14.6B': (.1397, .1088, .0576), '28.3B': (.1421, .1106, .0594)},
    'ZB-H2': {'1.5B': (.1083, .0837, .0444), '6.2B': (.0698, .0559, .0294),
              '14.6B': (.0672, .0516, .0266), '28.3B': (.0641, .0490, .0257)},
    'ZB-1p': {'1.5B': (.1585, .1242, .0674), '6.2B': (.1323, .1045, .0554),
              '14.6B': (.1397, .1088, .0576), '28.3B': (.1421, .1106, .0594)},
    'ZB-2p': {'1.5B': (.0433, .0039, .0026), '6.2B': (.0029, .0022, .0010),
              '14.6B': (.0066, .0054, .0028), '28.3B': (.0038, .0029, .0018)},
}

# ZB table 9 of ICLR, 12 of arXiv: few micro-batches; (1F1B, ZB-2p), samples per GPU and second.
FEW = {
    '1.5B': {2: (3.56, 4.25), 4: (5.74, 6.92), 8: (8.26, 9.90)},
    '6.2B': {2: (1.04, 1.33), 4: (1.69, 2.16), 8: (2.45, 3.07)},
    '14.6B': {4: (0.39, 0.52), 8: (0.65, 0.85), 16: (0.95, 1.25)},
}

# ZB table 6 of arXiv: other stages and sizes, without a profile. Model -> stages, samples of a
# micro-batch, micro-batches, samples per GPU and second.
OTHER = {
    '6.2B': (16, 6, (48, 64, 128), {'1F1B': (3.38, 3.57, 3.91), 'ZB-1p': (3.87, 4.00, 4.29),
                                    'ZB-V': (4.15, 4.21, 4.35)}),
    '14.6B': (24, 2, (72, 96, 192), {'1F1B': (1.52, 1.61, 1.76), 'ZB-1p': (1.72, 1.78, 1.89),
                                     'ZB-V': (1.85, 1.88, 1.93)}),
    '28.3B': (32, 2, (96, 128, 256), {'1F1B': (0.82, 0.87, 0.95), 'ZB-1p': (0.94, 0.97, 1.03),
                                      'ZB-V': (1.01, 1.02, 1.06)}),
}

# CM table 4: MFU in percent of the 38.5B model, 32 stages, 512 micro-batches of one sample.
CM_STAGES, CM_MICROBATCHES = 32, 512
CM = {'1F1B': 47.1, 'V-ZB': 53.2, 'V-Half': 51.8, 'V-Min': 43.7}

SCHEDULES = {
    '1F1B': ('1f1b',), '1F1B-I': ('interleaved',), 'ZB-H1': ('zb-h1',), 'ZB-H2': ('zb-h2',),
    'ZB-1p': ('zb-auto', 1), 'ZB-2p': ('zb-auto', 2), 'ZB-V': ('zb-v',), 'V-ZB': ('zb-v',),
    'V-Half': ('v-half',), 'V-Min': ('v-min',),
}


def plan(name, stages, microbatches, times, chunks=0):
    """Makespan and longest span of a step, in the unit of the times."""
    schedule = SCHEDULES[name]
    words = [PPCLI, 'plan', '--schedule', schedule[0], '--stages', stages, '--microbatches',
             microbatches, '--format', 'json']
    for option, value in zip(('f', 'i', 'w', 'comm'), times):
        words += ['--cost-' + option, value]
    if len(schedule) > 1:
        words += ['--memory-cap', schedule[1] * stages]
    if name == '1F1B-I':
        words += ['--chunks', chunks]
    out = subprocess.run([str(w) for w in words], check=True, stdout=subprocess.PIPE).stdout
    figures = json.loads(out)
    return figures['makespan'], figures['bubble_span']


class Errors:
    """How far predictions are off, in percent."""

    def __init__(self):
        self.all = []

    def cell(self, predicted, measured, text):
        error = 100 * (predicted / measured - 1)
        self.all.append(error)
        return f'{text.format(predicted)} / {text.format(measured)} ({error:+.1f} %)'

    def summary(self):
        mean = sum(abs(e) for e in self.all) / len(self.all)
        return (f'Mean error {mean:.1f} %, largest {max(self.all, key=abs):+.1f} %, '
                f'{len(self.all)} predictions.\n')


def table(head, rows):
    print('| ' + ' | '.join(head) + ' |\n|' + '---|' * len(head))
    for row in rows:
        print('| ' + ' | '.join(row) + ' |')
    print()


def throughput():
    print('### Throughput (ZB, table 4): predicted / measured samples per GPU and second\n')
    total = Errors()
    rows = []
    for model, (p, b, chunks, profile) in PROFILE.items():
        for k, (m, times) in enumerate(profile.items()):
            row = [model, str(p), str(m)]
            for name, measured in MEASURED.items():
                step = plan(name, p, m, times, chunks)[0] / 1000
                row.append(total.cell(m * b / step / p, measured[model][k], '{:.3g}'))
            rows.append(row)
    table(['model', 'stages', 'micro-batches'] + list(MEASURED), rows)
    print(total.summary())


def rates():
    print('### Bubble rates (ZB, table 5): ppcli / paper, in percent\n')
    rows = []
    for model, (p, _, chunks, profile) in PROFILE.items():
        for k, (m, times) in enumerate(profile.items()):
            row = [model, str(p), str(m)]
            for name, paper in RATES.items():
                rate = plan(name, p, m, times, chunks)[1]
                row.append(f'{100 * rate:.2f} / {100 * paper[model][k]:.2f}')
            rows.append(row)
    table(['model', 'stages', 'micro-batches'] + list(RATES), rows)


def few():
    print('### Few micro-batches (ZB, table 9 of ICLR): predicted / measured samples per GPU and '
          'second\n')
    total = Errors()
    rows = []
    for model, counts in FEW.items():
        p, b, _, profile = PROFILE[model]
        times = next(iter(profile.values()))
        for m, measured in counts.items():
            row = [model, str(p), str(m)]
            for name, value in zip(('1F1B', 'ZB-2p'), measured):
                step = plan(name, p, m, times)[0] / 1000
                row.append(total.cell(m * b / step / p, value, '{:.3g}'))
            rows.append(row)
    table(['model', 'stages', 'micro-batches', '1F1B', 'ZB-2p'], rows)
    print(total.summary())


def other():
    print('### Other stages and micro-batch sizes (ZB, table 6 of arXiv): predicted / measured '
          'samples per GPU and second\n')
    total = Errors()
    rows = []
    for model, (p, b, counts, measured) in OTHER.items():
        from_p, from_b, _, profile = PROFILE[model]
        *times, comm = next(iter(profile.values()))
        scale = b / from_b * from_p / p  # as many samples, as many layers of a stage
        times = [t * scale for t in times] + [comm * b / from_b]
        factor = None
        for k, m in enumerate(counts):
            row = [model, str(p), str(m)]
            for name, values in measured.items():
                rate = m * b / (plan(name, p, m, times)[0] / 1000) / p
                if factor is None:
                    factor = values[k] / rate
                    row.append(f'{values[k]} (fitted, factor {factor:.3f})')
                else:
                    row.append(total.cell(rate * factor, values[k], '{:.3g}'))
            rows.append(row)
    table(['model', 'stages', 'micro-batches'] + list(next(iter(OTHER.values()))[3]), rows)
    print(total.summary())


def controllable():
    print(f'### V schedules (CM, table 4): MFU of the 38.5B model, {CM_STAGES} stages, '
          f'{CM_MICROBATCHES} micro-batches\n')
    total = Errors()
    times = PROFILE['28.3B'][3][256]
    rows = []
    factor = None
    for name, measured in CM.items():
        work = CM_MICROBATCHES * sum(times[:3]) / plan(name, CM_STAGES, CM_MICROBATCHES, times)[0]
        if factor is None:
            factor = measured / work
            rows.append([name, f'{measured} (fitted)'])
        else:
            rows.append([name, total.cell(factor * work, measured, '{:.1f}')])
    table(['schedule', 'predicted / measured MFU, %'], rows)
    print(total.summary())


throughput()
rates()
few()
other()
controllable()
