"""Small programs that hang on purpose, each for one reason; they write a line as soon as they are about to."""

from __future__ import annotations

import textwrap

_SOURCES = {
    "deadlock": """
        first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)
        def transfer(one, other):
            with one:
                both.wait()
                with other:
                    pass
        threading.Thread(target=transfer, args=(first, second), name="accounts").start()
        ready()
        transfer(second, first)
    """,
    "lock": """
        guard = threading.Lock()
        def update():
            with guard:
                refresh()
        def refresh():
            with guard:
                pass
        ready()
        update()
    """,
    "fork-lock": """
        guard = threading.Lock()
        def hold():
            with guard:
                time.sleep(3600)
        threading.Thread(target=hold, daemon=True).start()
        while not guard.locked():
            time.sleep(0.01)
        if os.fork() == 0:
            ready()
            guard.acquire()
        os.wait()
    """,
    "fifo": """
        path = sys.argv[1] + ".fifo"
        os.mkfifo(path)
        ready()
        open(path).read()
    """,
    "own-pipe": """
        reader, writer = os.pipe()
        ready()
        os.read(reader, 1)
    """,
    "pipe-full": """
        child = subprocess.Popen([sys.executable, "-c", "print('x' * 1000000)"], stdout=subprocess.PIPE)
        ready()
        child.wait()
    """,
    "file-lock": """
        path = sys.argv[1] + ".lock"
        file = open(path, "w")
        fcntl.flock(file, fcntl.LOCK_EX)
        code = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX)"
        child = subprocess.Popen([sys.executable, "-c", code, path])
        ready()
        child.wait()
    """,
    "connect": """
        server = socket.socket()
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting = [socket.socket() for _ in range(8)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        ready()
        socket.create_connection(server.getsockname())
    """,
    "peer": """
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        other, _ = server.accept()
        if os.fork() == 0:
            client.close()
            while True:
                time.sleep(3600)
        other.close()
        ready()
        client.recv(1)
    """,
    "name": """
        silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        silent.connect(("127.0.0.1", 53))
        ready()
        silent.recv(512)
    """,
    "spins": """
        ready()
        pattern = re.compile("(a+)+b")
        pattern.match("a" * 60)
    """,
    "zombie": """
        import multiprocessing
        queue = multiprocessing.get_context("fork").Queue()
        worker = multiprocessing.get_context("fork").Process(target=lambda: os._exit(1))
        worker.start()
        ready()
        queue.get()
    """,
    "sleeps": """
        ready()
        time.sleep(3600)
    """,
    "join": """
        def read():
            os.read(os.pipe()[0], 1)
        worker = threading.Thread(target=read, name="reader")
        worker.start()
        ready()
        worker.join()
    """,
    "moves": """
        ready()
        total = 0
        while True:
            for number in range(1000):
                total += number * number
            total %= 7
    """,
    "copies": """
        reader, writer = os.pipe()
        ready()
        while True:
            os.write(writer, b"x" * 4096)
            os.read(reader, 4096)
    """,
}
_BEGINNING = """
import fcntl, os, re, socket, subprocess, sys, threading, time
def ready():
    print("ready", flush=True)
"""
PROGRAMS = {name: _BEGINNING + textwrap.dedent(source) for name, source in _SOURCES.items()}
