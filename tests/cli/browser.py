# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium over its DevTools pipe, with nothing but Python's own library."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

LIMIT = 120  # seconds that any answer may take, on a busy machine
failures = []  # names of checks of the test that imports this


def check(name, true, *shown):
    print(('ok   ' if true else 'FAIL ') + name, flush=True)
    if not true:
        failures.append(name)
        print('     ' + ' | '.join(str(x)[:1500] for x in shown))


def find():
    for name in ('chromium', 'chromium-browser', 'google-chrome'):
        if shutil.which(name):
            return shutil.which(name)
    return None


class Browser:
    """One page at a time. `messages` holds what the page said to the console or asked the network for."""

    def __init__(self, program, width=1280, height=900):
        self.folder = tempfile.mkdtemp(prefix='ppcli-chromium-')
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()
        command = [program, '--headless=new', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe',
                   '--no-first-run', '--disable-extensions', '--disable-background-networking',
                   '--hide-scrollbars', f'--user-data-dir={self.folder}', f'--window-size={width},{height}',
                   'about:blank']
        shell = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self.process = subprocess.Popen(['bash', '-c', shell, 'chromium', *command],
                                        pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.number, self.session, self.events, self.messages = b'', 0, None, [], []
        target = next(t for t in self.call('Target.getTargets')['targetInfos'] if t['type'] == 'page')
        self.session = self.call('Target.attachToTarget', targetId=target['targetId'],
                                 flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.call(domain + '.enable')
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1,
                  mobile=False)

    def close(self):
        for end in (self.write_end, self.read_end):
            os.close(end)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def receive(self):
        end = time.monotonic() + LIMIT
        while b'\0' not in self.buffer:
            ready, _, _ = select.select([self.read_end], [], [], max(0, end - time.monotonic()))
            piece = os.read(self.read_end, 1 << 20) if ready else b''
            if not piece:
                raise RuntimeError('Chromium ended' if ready else f'Chromium did not answer in {LIMIT} s')
            self.buffer += piece
        text, _, self.buffer = self.buffer.partition(b'\0')
        return json.loads(text)

    def note(self, event):
        """Keep what should not be."""
        method, params = event.get('method'), event.get('params', {})
        if method in ('Runtime.consoleAPICalled', 'Runtime.exceptionThrown', 'Log.entryAdded'):
            self.messages.append(json.dumps(params)[:400])
        if method == 'Network.requestWillBeSent' and not params['request']['url'].startswith(('file:', 'data:', 'about:')):
            self.messages.append('request of ' + params['request']['url'])
        self.events.append(method)

    def call(self, method, **params):
        self.number += 1
        message = {'id': self.number, 'method': method, 'params': params}
        if self.session:
            message['sessionId'] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b'\0')
        while True:
            answer = self.receive()
            if answer.get('id') == self.number:
                if 'error' in answer:
                    raise RuntimeError(f'{method}: {answer["error"]}')
                return answer['result']
            self.note(answer)

    def open(self, path):
        self.events, self.messages = [], []
        self.call('Page.navigate', url='file://' + os.path.abspath(path))
        while 'Page.loadEventFired' not in self.events:
            self.note(self.receive())
        self.settle()

    def settle(self):
        """Two frames later, so that observers of sizes have run."""
        self.run('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))')

    def run(self, expression):
        result = self.call('Runtime.evaluate', expression=expression, returnByValue=True, awaitPromise=True)
        if 'exceptionDetails' in result:
            raise RuntimeError(expression + ': ' + json.dumps(result['exceptionDetails'])[:600])
        return result['result'].get('value')

    def text(self, selector='body'):
        return self.run(f'document.querySelector({json.dumps(selector)}).innerText')

    def mouse(self, kind, x, y, **more):
        self.call('Input.dispatchMouseEvent', type=kind, x=x, y=y, **more)

    def key(self, key, shift=False, control=False):
        text = '\r' if key == 'Enter' else key if len(key) == 1 and not control else None
        for kind in ('keyDown', 'keyUp'):
            self.call('Input.dispatchKeyEvent', type=kind, key=key, modifiers=8 * shift + 2 * control,
                      **({'text': text} if text and kind == 'keyDown' else {}))

    def media(self, name, value):
        self.call('Emulation.setEmulatedMedia', features=[{'name': name, 'value': value}])
        self.settle()

    def screenshot(self, path, whole=True):
        shot = self.call('Page.captureScreenshot', format='png', captureBeyondViewport=whole,
                         **({'clip': {**self.size(), 'x': 0, 'y': 0, 'scale': 1}} if whole else {}))
        with open(path, 'wb') as f:
            f.write(base64.b64decode(shot['data']))

    def size(self):
        box = self.call('Page.getLayoutMetrics')['cssContentSize']
        return {'width': box['width'], 'height': box['height']}
