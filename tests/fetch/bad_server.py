#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A web server that misbehaves on request, for test_fetch_http: bad_server.py FILE LOG

Serves FILE (a .gz) under /MODE/TOKEN/anything; MODE says what goes wrong, TOKEN keeps the requests
of one case apart from those of the next. Listens on 127.0.0.1 only, on ports of the system's
choice, which are printed as "HTTP_PORT HTTPS_PORT EXPIRED_PORT" (0 when there is no openssl to
make a certificate; that of the last one has expired). Each request is one line in LOG. Ends when its standard input does, and in any case
after LIFETIME seconds or REQUESTS_MAX requests.
"""
import gzip
import os
import shutil
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

LIFETIME = 120
REQUESTS_MAX = 2000

with open(sys.argv[1], "rb") as f:
    GOOD = f.read()
HALF = len(GOOD) // 2
WRONG = GOOD[:HALF // 2] + bytes([GOOD[HALF // 2] ^ 1]) + GOOD[HALF // 2 + 1:]
PAGE = b"<!doctype html><title>403</title><p>go away</p>" * 20

log_lock = threading.Lock()
counts = {}
total = 0


def count(path, line):
    """How many requests this path has had before."""
    global total
    with log_lock:
        total += 1
        if total > REQUESTS_MAX:
            os._exit(1)
        n = counts.get(path, 0)
        counts[path] = n + 1
        with open(sys.argv[2], "a") as log:
            log.write(line + "\n")
        return n


class Handler(socketserver.StreamRequestHandler):
    timeout = 10

    def send(self, data):
        self.wfile.write(data)
        self.wfile.flush()

    def head(self, status, headers=()):
        lines = ["HTTP/1.1 %s" % status, "Connection: close", *headers, "", ""]
        self.send("\r\n".join(lines).encode())

    def whole(self, data, etag=None, extra=()):
        headers = ["Content-Length: %d" % len(data), *extra]
        if etag:
            headers.append('ETag: "%s"' % etag)
        self.head("200 OK", headers)
        self.send(data)

    def announce(self, data, send, etag=None):
        """Announce all of data, send some of it."""
        headers = ["Content-Length: %d" % len(data)]
        if etag:
            headers.append('ETag: "%s"' % etag)
        self.head("200 OK", headers)
        self.send(data[:send])

    def rest(self, data, first, etag="v1", claim=None, send=None):
        claim = first if claim is None else claim
        self.head("206 Partial Content", [
            "Content-Length: %d" % (len(data) - first), 'ETag: "%s"' % etag,
            "Content-Range: bytes %d-%d/%d" % (claim, len(data) - 1, len(data))])
        self.send(data[first:] if send is None else data[first:first + send])

    def good(self, first, etag="v1"):
        if first is None:
            self.whole(GOOD, etag)
        elif first >= len(GOOD):
            self.head("416 Range Not Satisfiable", ["Content-Length: 0"])
        else:
            self.rest(GOOD, first, etag)

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def error(self, status, headers=(), body=b"no\n"):
        self.head(status, ["Content-Length: %d" % len(body), "Content-Type: text/plain", *headers])
        self.send(body)

    def handle(self):
        try:
            self.answer()
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError, socket.timeout, OSError):
            pass  # the client had enough, which is what most cases want

    def finish(self):
        try:
            super().finish()
        except (OSError, ValueError):
            pass

    def answer(self):
        if not self.rfile.peek(1)[:1].isalpha():
            return  # TLS spoken to a plain port
        request = self.rfile.readline(8192).decode("latin-1").split()
        headers = {}
        for _ in range(100):
            line = self.rfile.readline(8192).decode("latin-1").strip()
            if not line:
                break
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if len(request) < 2:
            return
        path = request[1]
        mode = path.split("/")[1]
        first = None
        if headers.get("range", "").startswith("bytes="):
            first = int(headers["range"][6:].rstrip("-"))
        n = count(path, "%s range=%s agent=%s" % (
            path, "-" if first is None else first, headers.get("user-agent", "-")))
        name, _, number = mode.partition("-")
        getattr(self, "do_" + name)(path, n, first, int(number or 0))

    # --- well behaved, in one way or another
    def do_good(self, path, n, first, k):
        self.good(first)

    def do_chunked(self, path, n, first, k):
        self.head("200 OK", ["Transfer-Encoding: chunked"])
        for i in range(0, len(GOOD), 5000):
            piece = GOOD[i:i + 5000]
            self.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.send(b"0\r\n\r\n")

    def do_nolength(self, path, n, first, k):
        self.head("200 OK")
        self.send(GOOD)

    def do_plain(self, path, n, first, k):
        self.whole(gzip.decompress(GOOD))

    # --- refusals
    def do_404(self, path, n, first, k):
        self.error("404 Not Found")

    def do_403html(self, path, n, first, k):
        self.head("403 Forbidden", ["Content-Type: text/html", "Content-Length: %d" % len(PAGE)])
        self.send(PAGE)

    def do_200html(self, path, n, first, k):
        self.whole(PAGE, extra=["Content-Type: text/html"])

    def do_endless404(self, path, n, first, k):
        self.head("404 Not Found")
        for _ in range(10000):
            self.send(b"x" * 65536)

    def do_416(self, path, n, first, k):
        if first is None and n == 0:
            self.announce(GOOD, HALF, "v1")
        elif first is not None:
            self.error("416 Range Not Satisfiable")
        else:
            self.whole(GOOD)

    def do_always500(self, path, n, first, k):
        self.error("500 Internal Server Error")

    def do_twice500(self, path, n, first, k):
        if n < 2:
            self.error("500 Internal Server Error")
        else:
            self.good(first)

    def do_later(self, path, n, first, k):
        if n == 0:
            self.error("429 Too Many Requests", ["Retry-After: %d" % k])
        else:
            self.good(first)

    # --- bodies that are not the file
    def do_empty(self, path, n, first, k):
        self.whole(b"")

    def do_onebyte(self, path, n, first, k):
        self.whole(b"\x1f")

    def do_wrong(self, path, n, first, k):
        self.whole(WRONG, "v1")

    def do_encoded(self, path, n, first, k):
        self.whole(gzip.compress(GOOD), extra=["Content-Encoding: gzip"])

    def do_hugelength(self, path, n, first, k):
        self.announce(GOOD + bytes(10 ** 6), len(GOOD))

    def do_endless(self, path, n, first, k):
        self.head("200 OK")
        self.send(GOOD)
        for _ in range(10000):
            self.send(bytes(65536))

    def do_trailing(self, path, n, first, k):
        self.whole(GOOD + b"trailing")

    def do_nohttp(self, path, n, first, k):
        self.send(GOOD)

    # --- connections that break or crawl
    def do_short(self, path, n, first, k):
        self.announce(GOOD, HALF)

    def do_shortnolength(self, path, n, first, k):
        self.head("200 OK")
        self.send(GOOD[:HALF])

    def do_thirds(self, path, n, first, k):
        third = len(GOOD) // 3 + 1
        if first is None:
            self.announce(GOOD, third, "v1")
        else:
            self.rest(GOOD, first, send=third)

    def do_reset(self, path, n, first, k):
        self.announce(GOOD, 1000)
        self.reset()

    def do_resetonce(self, path, n, first, k):
        if n == 0:
            self.do_reset(path, n, first, k)
        else:
            self.good(first)

    def do_hangup(self, path, n, first, k):
        self.reset()

    def do_stall(self, path, n, first, k):
        self.announce(GOOD, 100, "v1")
        time.sleep(6)

    def do_silent(self, path, n, first, k):
        time.sleep(6)

    def do_drip(self, path, n, first, k):
        self.head("200 OK", ["Content-Length: %d" % len(GOOD), 'ETag: "v1"'])
        for i in range(60):
            self.send(GOOD[i * 20:i * 20 + 20])
            time.sleep(0.1)

    def do_slowonce(self, path, n, first, k):
        if n > 0:
            return self.good(first)
        self.head("200 OK", ["Content-Length: %d" % len(GOOD), 'ETag: "v1"'])
        for i in range(0, len(GOOD), 1000):
            self.send(GOOD[i:i + 1000])
            time.sleep(0.004)

    # --- resuming
    def do_cut(self, path, n, first, k):
        if n == 0:
            self.announce(GOOD, k, "v1")
        else:
            self.good(first)

    def do_cutignore(self, path, n, first, k):
        if n == 0:
            self.announce(GOOD, HALF, "v1")
        else:
            self.whole(GOOD, "v1")

    def do_cutwrongrange(self, path, n, first, k):
        if n == 0:
            self.announce(GOOD, HALF, "v1")
        elif first is not None:
            self.rest(GOOD, first, claim=0)
        else:
            self.whole(GOOD, "v1")

    def do_wrongrange(self, path, n, first, k):
        self.rest(GOOD, 0, claim=7)

    def do_cutchanged(self, path, n, first, k):
        """The first part is of another file, and If-Range is not looked at."""
        if n == 0:
            self.announce(WRONG, HALF, "v1")
        else:
            self.good(first, "v2")

    def do_cutbad(self, path, n, first, k):
        if n == 0:
            self.announce(WRONG, HALF, "v1")
        elif first is not None:
            self.rest(WRONG, first)
        else:
            self.whole(WRONG, "v1")

    # --- redirects
    def to(self, where):
        self.error("302 Found", ["Location: " + where], b"<html>moved</html>")

    def do_redirect(self, path, n, first, k):
        self.to("/good/" + path.split("/", 2)[2])

    def do_hops(self, path, n, first, k):
        self.to(path.replace("/hops-%d/" % k, "/hops-%d/" % (k - 1) if k > 1 else "/good/"))

    def do_loop(self, path, n, first, k):
        self.to(path)

    def do_tohttp(self, path, n, first, k):
        self.to("http://example.invalid/x.gz")

    def do_tofile(self, path, n, first, k):
        self.to("file:///etc/passwd")

    def do_toftp(self, path, n, first, k):
        self.to("ftp://127.0.0.1/x.gz")

    def do_nowhere(self, path, n, first, k):
        self.error("302 Found")


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass


class TlsServer(Server):
    """With a certificate that nobody signed."""

    def __init__(self, context):
        super().__init__(("127.0.0.1", 0), Handler)
        self.context = context

    def get_request(self):
        sock, address = self.socket.accept()
        sock.settimeout(5)
        return self.context.wrap_socket(sock, server_side=True), address


CA = """[ca]
default_ca = here
[here]
dir = %s
database = $dir/index
new_certs_dir = $dir
policy = any
default_md = sha256
[any]
commonName = supplied
"""


def openssl(*words):
    return subprocess.run(["openssl", *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


def make_tls(expired):
    if not shutil.which("openssl"):
        return None
    with tempfile.TemporaryDirectory() as folder:
        cert, key, asked, config = (os.path.join(folder, x) for x in ("cert", "key", "asked", "ca"))
        new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
               key, "-subj", "/CN=127.0.0.1"]
        if expired:
            open(os.path.join(folder, "index"), "w").close()
            with open(config, "w") as f:
                f.write(CA % folder)
            made = openssl(*new, "-out", asked) and openssl(
                "ca", "-batch", "-selfsign", "-config", config, "-keyfile", key, "-in", asked,
                "-out", cert, "-notext", "-rand_serial", "-startdate", "20200101000000Z",
                "-enddate", "20200102000000Z")
        else:
            made = openssl(*new, "-x509", "-out", cert, "-days", "1", "-addext",
                           "subjectAltName=IP:127.0.0.1")
        if not made:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        return TlsServer(context)


def main():
    server = Server(("127.0.0.1", 0), Handler)
    servers = [server, make_tls(False), make_tls(True)]
    for s in filter(None, servers):
        threading.Thread(target=s.serve_forever, daemon=True).start()
    print(*(s.server_address[1] if s else 0 for s in servers), flush=True)
    threading.Timer(LIFETIME, lambda: os._exit(1)).start()
    sys.stdin.buffer.read()  # until whoever started this is gone
    os._exit(0)


main()
