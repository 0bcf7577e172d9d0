#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Folders and arrays of pictures as data: images.py PPCLI JPEG PNG

Makes PNG files of every kind and trains on them; JPEG and PNG are "true" if ppcli has the library.
The decoded bytes are read from the file that data.cache keeps, whose first bytes are the pictures.
Prints TAP."""

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

PPCLI, JPEG, PNG = os.path.abspath(sys.argv[1]), sys.argv[2] == 'true', sys.argv[3] == 'true'
CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fuzz', 'corpus', 'picture')
H, W = 6, 5
count = 0


def check(good, name, why=''):
    global count
    count += 1
    print(('ok' if good else 'not ok'), count, '-', name)
    if not good:
        print('\n'.join('# ' + line for line in str(why).split('\n')))


def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))


def png(rows, width, bits, color, more=b'', interlace=0, after=b''):
    """A PNG file of packed rows: lists of bytes."""
    data = zlib.compress(b''.join(b'\0' + bytes(row) for row in rows))
    head = struct.pack('>IIBBBBB', width, H, bits, color, 0, 0, interlace)
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', head) + more + chunk(b'IDAT', data) + after +
            chunk(b'IEND', b''))


def interlaced(pixel, width, height):
    """The rows of the seven passes of Adam7; pixel(y, x) is a list of bytes."""
    rows = []
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
                           (0, 1, 1, 2)):
        if x0 < width:
            rows += [sum((pixel(y, x) for x in range(x0, width, dx)), []) for y in range(y0, height, dy)]
    return rows


def packed(values, bits):
    """Values below 2^bits, the first one in the upper bits of a byte."""
    text = ''.join(format(v, f'0{bits}b') for v in values)
    text += '0' * (-len(text) % 8)
    return [int(text[i:i + 8], 2) for i in range(0, len(text), 8)]


def value(y, x, c=0):
    return (y * 41 + x * 23 + c * 77) % 256


def rgb(y, x):
    return [value(y, x, c) for c in range(3)]


def rows_of(pixel):
    return [sum((pixel(y, x) for x in range(W)), []) for y in range(H)]


def kinds_in_colour():
    """(name, file, expected bytes [h][w][3]) of colour types that become RGB."""
    whole = bytes(sum(rows_of(rgb), []))
    colours = [(i * 9 % 256, i * 31 % 256, 255 - i) for i in range(16)]
    palette = chunk(b'PLTE', bytes(sum(map(list, colours), [])))
    index = [[(y * 3 + x) % 16 for x in range(W)] for y in range(H)]
    of_index = bytes(v for row in index for i in row for v in colours[i])
    wide = [sum(([v, 99] for x in range(W) for v in rgb(y, x)), []) for y in range(H)]
    yield 'rgb', png(rows_of(rgb), W, 8, 2), whole
    yield 'rgba: alpha is dropped', png(rows_of(lambda y, x: rgb(y, x) + [x]), W, 8, 6), whole
    yield 'rgb of 16 bits: the upper 8', png(wide, W, 16, 2), whole
    yield 'rgb with a transparent colour', png(rows_of(rgb), W, 8, 2, chunk(b'tRNS', bytes(6))), whole
    yield 'interlaced', png(interlaced(rgb, W, H), W, 8, 2, interlace=1), whole
    yield 'palette of 8 bits', png(index, W, 8, 3, palette), of_index
    yield 'palette of 4 bits', png([packed(row, 4) for row in index], W, 4, 3, palette), of_index
    yield 'palette with transparency', png(index, W, 8, 3, palette + chunk(b'tRNS', b'\0\x80')), of_index
    grey = bytes(v for y in range(H) for x in range(W) for v in [value(y, x)] * 3)
    yield 'grey among colours', png(rows_of(lambda y, x: [value(y, x)]), W, 8, 0), grey


def kinds_in_grey():
    grey = bytes(value(y, x) for y in range(H) for x in range(W))
    low = [[(y + x) % 4 for x in range(W)] for y in range(H)]
    levels = chunk(b'PLTE', bytes(v for i in range(256) for v in [255 - i] * 3))
    yield 'grey', png(rows_of(lambda y, x: [value(y, x)]), W, 8, 0), grey
    yield 'grey and alpha', png(rows_of(lambda y, x: [value(y, x), 7]), W, 8, 4), grey
    yield 'grey of 16 bits: the upper 8', png(rows_of(lambda y, x: [value(y, x), 200]), W, 16, 0), grey
    yield 'grey of 2 bits', png([packed(row, 2) for row in low], W, 2, 0), bytes(85 * v for row in low for v in row)
    yield ('black and white', png([packed([v % 2 for v in row], 1) for row in low], W, 1, 0),
           bytes(255 * (v % 2) for row in low for v in row))
    yield ('palette of greys', png(rows_of(lambda y, x: [value(y, x)]), W, 8, 3, levels),
           bytes(255 - v for v in grey))


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'wb') as f:
        f.write(data)


class Place:
    """A folder with data/train, data/test, a cache and a config."""

    def __init__(self, inputs, classes, **keys):
        self.dir = tempfile.mkdtemp(prefix='ppcli-images-')
        self.data, self.cache = self.dir + '/data', self.dir + '/cache'
        self.inputs, self.classes, self.keys = inputs, classes, keys

    def run(self, command='train', **more):
        keys = {'path': self.data, 'cache': self.cache, **self.keys, **more}
        write(self.dir + '/c.ini', ('[data]\ndataset = images\n' + ''.join(f'{k} = {v}\n' for k, v in keys.items()) +
              f'[model]\nsizes = {self.inputs} 8 {self.classes}\n[train]\nepochs = 1\nbatch_size = 4\n').encode())
        words = ['--dir', ''] if command == 'train' else []
        r = subprocess.run([PPCLI, command, self.dir + '/c.ini', *words], capture_output=True, text=True,
                           cwd=self.dir, timeout=100)
        self.code, self.text = r.returncode, r.stdout + r.stderr
        return r.returncode

    def sha(self):
        return [line.split()[1] for line in self.text.split('\n') if line.startswith('weights_sha256')]

    def cached(self):
        files = [f for f in os.listdir(self.cache) if f.endswith('.bin')]
        with open(self.cache + '/' + files[0], 'rb') as f:
            return f.read()

    def remove(self):
        shutil.rmtree(self.dir)


def check_kinds(name, kinds, channels):
    place = Place(H * W * channels, 2)
    kinds = list(kinds)
    for i, (_, data, _) in enumerate(kinds):
        write(f'{place.data}/train/a/{i:03}.png', data)
    write(f'{place.data}/train/b/0.png', kinds[0][1])
    write(f'{place.data}/test/b/0.png', kinds[0][1])
    place.run()
    check(place.code == 0, f'{name}: {len(kinds)} kinds of PNG are read', place.text)
    got = place.cached() if place.code == 0 else b''
    for i, (kind, _, expected) in enumerate(kinds):
        n = H * W * channels
        check(got[i * n:(i + 1) * n] == expected, f'{name}, {kind}: its bytes', (got[i * n:(i + 1) * n], expected))
    place.remove()


def check_orientation():
    place = Place(W * H * 3, 2)
    for o in range(5, 9):
        exif = b'MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0' + bytes([o]) + bytes(6)
        write(f'{place.data}/train/a/{o}.png', png(rows_of(rgb), W, 8, 2, chunk(b'eXIf', exif)))
    exif = b'II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0' + bytes(4)
    write(f'{place.data}/train/b/0.png', png(rows_of(rgb), W, 8, 2, after=chunk(b'eXIf', exif)))
    write(f'{place.data}/test/b/0.png', png(rows_of(rgb), W, 8, 2, after=chunk(b'eXIf', exif)))
    place.run()
    got = place.cached() if place.code == 0 else b''
    turns = {5: lambda y, x: rgb(x, y), 6: lambda y, x: rgb(H - 1 - x, y), 7: lambda y, x: rgb(H - 1 - x, W - 1 - y),
             8: lambda y, x: rgb(x, W - 1 - y)}
    n = H * W * 3
    for i, o in enumerate((5, 6, 7, 8, 6)):
        expected = bytes(v for y in range(W) for x in range(H) for v in turns[o](y, x))
        check(got[i * n:(i + 1) * n] == expected, f'orientation {o} is applied', place.text if not got else '')
    place.remove()


def check_runs():
    place = Place(28 * 28, 3, resize=28)
    for i in range(60):
        rows = [[(y * (i % 3 + 1) * 9 + x * 5) % 256 for x in range(H)] for y in range(H)]
        write(f'{place.data}/{"abc"[i % 3]}/{i}.png', png(rows, H, 8, 0))
    place.run()
    check(place.code == 78 and 'data.split' in place.text and 'split = 0.2' in place.text,
          'class folders alone need data.split, which is said', place.text)
    place.keys['split'] = 0.25
    place.run()
    first, cached = place.sha(), place.cached() if place.code == 0 else b''
    check(place.code == 0 and len(first) == 1, 'class folders with data.split are trained on', place.text)
    place.run()
    check(place.sha() == first, 'the second start, from the cache, gives the same weights', place.text)
    place.run(cache='off')
    check(place.sha() == first, 'data.cache = off gives the same weights', place.text)
    place.run('explain')
    before = [line for line in place.text.split('\n') if line.startswith('data:')]
    numbers = [int(w.replace(',', '')) for w in before[0].replace(',', '').split() if w.isdigit()]
    write(place.data + '/a/another.png', png([[7] * H] * H, H, 8, 0))
    place.run('explain')
    after = [line for line in place.text.split('\n') if line.startswith('data:')]
    more = [int(w) for w in after[0].replace(',', '').split() if w.isdigit()]
    check(numbers[0] + numbers[-1] + 1 == more[0] + more[-1] and place.cached() != cached,
          'a picture that was added is seen', f'{before} {after}')
    os.remove(place.data + '/a/another.png')
    place.run(train_samples=9, test_samples=3)
    check(place.code == 0 and '9 training and 3 test' in place.text and place.sha() != first,
          'data.train_samples leaves pictures of all classes', place.text)
    place.remove()


def check_init():
    """What init prints for a folder trains as it stands, from the cache that init made."""
    place = Place(0, 0)
    for i in range(40):
        size = 40 + i % 5
        rows = [[(y * (i % 2 + 1) * 9 + x * 5 + c * 40) % 256 for x in range(size) for c in range(3)] for y in range(H)]
        rows = (rows * 8)[:H]
        write(f'{place.data}/{"ab"[i % 2]}/{i}.png', png(rows, size, 8, 2))
    env = dict(os.environ, XDG_CACHE_HOME=place.dir + '/home')
    r = subprocess.run([PPCLI, 'init', 'data', '-o', 'my.ini'], capture_output=True, text=True, cwd=place.dir, env=env)
    text = open(place.dir + '/my.ini').read() if r.returncode == 0 else r.stderr
    check('split = 0.2' in text and 'resize = 32' in text and 'crop = 32' in text, 'init proposes size and split', text)
    check(text.count('0.', text.find('mean =')) > 5, 'init measures the channels', text)
    made = os.listdir(place.dir + '/home/ppcli')
    r = subprocess.run([PPCLI, 'train', 'my.ini', '--dir', '', '--epochs', '1'], capture_output=True, text=True,
                       cwd=place.dir, env=env, timeout=100)
    check(r.returncode == 0 and os.listdir(place.dir + '/home/ppcli') == made, 'what it prints trains as it stands',
          r.stderr)
    place.remove()


def check_broken():
    good = png(rows_of(rgb), W, 8, 2)
    broken = {'empty.png': b'', 'cut.png': good[:60], 'text.jpg': b'no picture at all', 'webp.webp': b'RIFF0000WEBPVP8 ',
              'flipped.png': good[:45] + bytes([good[45] ^ 255]) + good[46:], 'bomb.png': b'\x89PNG\r\n\x1a\n' +
              chunk(b'IHDR', struct.pack('>IIBBBBB', 13000, 13000, 8, 2, 0, 0, 0)), 'head.jpg': b'\xff\xd8\xff\xe0'}
    place = Place(H * W * 3, 2)
    for k in 'ab':
        for i in range(6):
            write(f'{place.data}/train/{k}/{i}.png', good)
            write(f'{place.data}/test/{k}/{i}.png', good)
    for name, data in broken.items():
        write(f'{place.data}/train/a/{name}', data)
    write(place.data + '/train/a/notes.txt', b'x')
    write(place.data + '/train/a/.hidden.png', b'x')
    if JPEG:
        shutil.copy(CORPUS + '/cmyk.jpg', place.data + '/train/b/cmyk.jpg')
        broken['cmyk.jpg'] = b''
    else:
        del broken['head.jpg']
        os.remove(place.data + '/train/a/head.jpg')
    place.run()
    check(place.code == 0 and '12 training and 12 test' in place.text, 'broken pictures are left out', place.text)
    for name in broken:
        lines = [line for line in place.text.split('\n') if name + ': ' in line and 'left out' in line]
        check(len(lines) == 1, f'{name} is named in one line', place.text)
    place.run()
    check(place.code == 0 and f'{len(broken)} of ' in place.text, 'later starts say how many', place.text)
    check('notes.txt' in place.text and '.hidden' not in place.text, 'a file that is not a picture is ignored, and said')
    place.run(on_bad='stop')
    check(place.code == 65 and place.text.count('\n') <= 1 and 'on_bad = skip' in place.text,
          'data.on_bad = stop ends the run', place.text)
    place.remove()


def check_folders():
    good = png(rows_of(rgb), W, 8, 2)
    place = Place(H * W * 3, 2)
    place.run()
    check(place.code == 66, 'a folder that does not exist', place.text)
    for k in 'ab':
        write(f'{place.data}/train/{k}/0.png', good)
    write(place.data + '/val/c/0.png', good)
    place.run()
    check(place.code == 65 and "class 'c'" in place.text, 'a class of the test set that training lacks', place.text)
    shutil.move(place.data + '/val/c', place.data + '/val/b')
    place.run()
    check(place.code == 0, 'val is the test set where there is no test', place.text)
    place.run(path='', train_file=place.data + '/train', test_file=place.data + '/val')
    check(place.code == 0, 'data.train_file and data.test_file name folders', place.text)
    os.makedirs(place.data + '/train/empty')
    place.run()
    check(place.code == 65 and 'train/empty' in place.text, 'a class without a picture', place.text)
    os.rmdir(place.data + '/train/empty')
    write(place.data + '/train/a/1.png', png([row * 2 for row in rows_of(rgb)], W * 2, 8, 2))
    place.run()
    check(place.code == 78 and 'data.resize' in place.text, 'different sizes need data.resize, which is said',
          place.text)
    place.inputs = 48
    place.run(resize=8, crop=4)
    check(place.code == 0, 'resize and crop make them the same size', place.text)
    place.inputs = 16
    place.run(resize=4, channels=1)
    check(place.code == 0, 'data.channels = 1 makes them grey', place.text)
    place.remove()


def check_jpeg():
    place = Place(16 * 12 * 3, 2)
    for split in ('train', 'test'):
        shutil.copytree(CORPUS, f'{place.data}/{split}/a', ignore=lambda d, names: [n for n in names if n != 'rgb.jpg'])
        shutil.copytree(CORPUS, f'{place.data}/{split}/b', ignore=lambda d, names: [n for n in names if n != 'rgb.jpg'])
    place.run()
    got = place.cached()[:16 * 12 * 3] if place.code == 0 else b''
    # the picture before it was saved is [y][x] = x * 16, y * 20, (x + y) * 8, of 12 x 16, turned by its tag
    want = [v for y in range(16) for x in range(12) for v in (y * 16, (11 - x) * 20, (y + 11 - x) * 8)]
    far = max((abs(a - b) for a, b in zip(got, want)), default=999)
    check(far < 60 and len(got) == len(want), 'a JPEG picture is read, and turned upright', f'{far} {place.text}')
    place.remove()


def npy(kind, shape, data, fortran=False):
    head = f"{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': {shape}, }}".ljust(117) + '\n'
    return b'\x93NUMPY\1\0' + struct.pack('<H', len(head)) + head.encode() + data


def check_arrays():
    """Arrays in an archive, in Fortran order and of other types give the weights of the plain ones."""
    folder = tempfile.mkdtemp(prefix='ppcli-arrays-')
    n, values = 12, [[(i * 7 + k * 5) % 256 for k in range(6)] for i in range(12)]
    x = npy('|u1', (n, 2, 3), bytes(v for row in values for v in row))
    y = npy('<i8', (n,), b''.join(struct.pack('<q', i % 2) for i in range(n)))
    turned = npy('|u1', (n, 2, 3), bytes(values[i][h * 3 + w] for w in range(3) for h in range(2) for i in range(n)), True)
    write(folder + '/x.npy', x)
    write(folder + '/f.npy', turned)
    write(folder + '/y.npy', y)
    write(folder + '/one.npy', npy('<u2', (n,), b''.join(struct.pack('<H', i % 2) for i in range(n))))
    for name, method in (('stored', zipfile.ZIP_STORED), ('packed', zipfile.ZIP_DEFLATED)):
        with zipfile.ZipFile(f'{folder}/{name}.npz', 'w', method) as z:
            z.writestr('x_train.npy', x)
            z.writestr('y_train.npy', y)
    floats = [[v / 8 for v in row] for row in values]
    flat = [v for row in floats for v in row]
    write(folder + '/h.npy', npy('<f2', (n, 6), struct.pack(f'<{6 * n}e', *flat)))
    write(folder + '/s.npy', npy('<f4', (n, 6), struct.pack(f'<{6 * n}f', *flat)))

    def sha(images, labels):
        words = [f'data.{s}_images={images}' for s in ('train', 'test')] + [f'data.{s}_labels={labels}' for s in ('train', 'test')]
        r = subprocess.run([PPCLI, 'train', folder + '/c.ini', '--dir', ''] + [w for word in words for w in ('--set', word)],
                           capture_output=True, text=True, cwd=folder, timeout=100)
        return [line.split()[1] for line in r.stdout.split('\n') if line.startswith('weights_sha256')] or r.stderr

    write(folder + '/c.ini', b'[data]\ndataset = npy\n[model]\nsizes = 6 4 2\n[train]\nepochs = 1\nbatch_size = 4\n')
    plain = sha('x.npy', 'y.npy')
    check(isinstance(plain, list), 'arrays are trained on', plain)
    for images, labels in (('stored.npz:x_train', 'stored.npz:y_train'), ('packed.npz:x_train', 'packed.npz:y_train'),
                           ('f.npy', 'y.npy'), ('x.npy', 'one.npy')):
        got = sha(images, labels)
        check(got == plain, f'{images} and {labels} give the same weights', got)
    got = sha('h.npy', 'y.npy')
    check(got == sha('s.npy', 'y.npy') and isinstance(got, list), 'float16 gives the weights of float32', got)
    got = sha('packed.npz', 'y.npy')
    check('x_train, y_train' in got and 'packed.npz:x_train' in got, 'an archive without a name lists its arrays', got)
    data = bytearray(open(folder + '/packed.npz', 'rb').read())
    data[60] ^= 255
    write(folder + '/bad.npz', bytes(data))
    got = sha('bad.npz:x_train', 'y.npy')
    check(isinstance(got, str) and 'bad.npz' in got and got.count('\n') < 3, 'a damaged archive is refused in one line', got)

    records = b''.join(bytes([i % 20, 5 * i % 100]) + bytes((i * 3 + k) % 256 for k in range(3072)) for i in range(20))
    plain_records = b''.join(bytes([i % 10]) + bytes((i * 3 + k) % 256 for k in range(3072)) for i in range(20))
    write(folder + '/cifar/train.bin', records)
    write(folder + '/cifar/test.bin', records)
    write(folder + '/ten.bin', plain_records)
    cfg = '[data]\ndataset = cifar100\npath = cifar\n[model]\nsizes = 3072 4 100\n[train]\nepochs = 1\nbatch_size = 4\n'
    write(folder + '/c.ini', cfg.encode())
    r = subprocess.run([PPCLI, 'train', 'c.ini', '--dir', ''], capture_output=True, text=True, cwd=folder, timeout=100)
    check(r.returncode == 0 and '20 training and 20 test' in r.stdout + r.stderr, 'files of CIFAR-100 are read', r.stderr)
    r = subprocess.run([PPCLI, 'train', 'c.ini', '--dir', '', '--set', 'data.train_file=ten.bin'], capture_output=True,
                       text=True, cwd=folder, timeout=100)
    check(r.returncode == 65 and 'cifar10' in r.stderr, 'those of CIFAR-10 are named', r.stderr)
    shutil.rmtree(folder)


check_arrays()
if not PNG:
    print(f'1..{count}')
    sys.exit(0)
check_kinds('colour', kinds_in_colour(), 3)
check_kinds('grey', kinds_in_grey(), 1)
check_orientation()
check_runs()
check_init()
check_broken()
check_folders()
if JPEG:
    check_jpeg()
print(f'1..{count}')
