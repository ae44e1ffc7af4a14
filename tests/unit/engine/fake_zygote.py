"""Speaks the zygote's protocol and forks shell scripts: a worker's shell runs its ticket.

FAKE_ZYGOTE in the environment makes it fail in one way: exit_at_start, refuse, die_on_fork, garbage, deaf (never warm),
silent_exit (never reports how a worker ended), replaced (the import of a module fails midway, and it restarts).
"""

import array
import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import struct
import sys

MODE = os.environ.get("FAKE_ZYGOTE", "")


def send(sock, message, fds=()):
    body = json.dumps(message).encode()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    # In two parts, so that the reader gets an incomplete frame.
    sock.sendmsg([struct.pack(">I", len(body)) + body[:3]], rights)
    sock.sendall(body[3:])


def receive(sock):
    data, fds, _, _ = socket.recv_fds(sock, 4, 1)
    while data and len(data) < 4:
        data += sock.recv(4 - len(data))
    if not data:
        return None, []
    (length,) = struct.unpack(">I", data)
    body = b""
    while len(body) < length:
        body += sock.recv(length - len(body))
    return json.loads(body), fds


def become_worker(request, log):
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(request["cwd"])
    os.execve("/bin/sh", ["/bin/sh", "-c", request["ticket"]], request["env"])


def fork(sock, request, fds, children, poll):
    if MODE == "refuse":
        send(sock, {"op": "refused", "id": request["id"], "why": "3 threads after importing x"})
        return
    if MODE == "die_on_fork":
        os.kill(os.getpid(), signal.SIGKILL)
    if MODE == "garbage":
        sock.sendall(b"\x00\x00\x00\x04oops")
        return
    pid = os.fork()
    if pid == 0:
        try:
            become_worker(request, fds[0])
        finally:
            os._exit(1)  # exec failed
    pidfd = os.pidfd_open(pid)
    children[pidfd] = pid
    poll.register(pidfd, select.POLLIN)
    send(sock, {"op": "forked", "id": request["id"], "pid": pid}, [pidfd])


def main():
    if MODE == "exit_at_start":
        sys.exit(7)
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    assert os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
    sock = socket.socket(fileno=int(os.environ["TRIREME_ZYGOTE_FD"]))
    sock.set_inheritable(False)
    children = {}  # pidfd -> pid
    try:
        serve(sock, children)
    except ConnectionError:
        pass  # killed with unread messages from us, which resets the connection instead of closing it
    finally:
        for pid in children.values():
            for kill in (os.killpg, os.kill):  # before setsid() there is only the pid
                with contextlib.suppress(ProcessLookupError):
                    kill(pid, signal.SIGKILL)


def serve(sock, children):
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    send(sock, {"op": "ready", "pid": os.getpid()})
    while True:
        ready = {fd for fd, _ in poll.poll()}
        for pidfd in ready & children.keys():
            pid = children.pop(pidfd)
            poll.unregister(pidfd)
            os.close(pidfd)
            _, status = os.waitpid(pid, 0)
            if MODE != "silent_exit":
                with contextlib.suppress(BrokenPipeError):  # the engine has already noticed, and may have exited
                    send(sock, {"op": "exit", "pid": pid, "status": status})
        if sock.fileno() not in ready:
            continue
        request, fds = receive(sock)
        if request is None:
            return
        if request["op"] == "preload" and MODE == "replaced":
            send(sock, {"op": "replacing", "module": "broken", "why": "its import failed midway"})
            assert not select.select([sock], [], [], 0.2)[0], "a fork was asked for in between"
            send(sock, {"op": "preloaded", "modules": [], "failed": {"broken": "ValueError: midway"}, "threads": 1})
            send(sock, {"op": "ready", "pid": os.getpid()})
        elif request["op"] == "preload" and MODE != "deaf":
            failed = {name: "ImportError: no" for name in request["modules"] if name == "missing"}
            send(sock, {"op": "preloaded", "modules": request["modules"], "failed": failed, "threads": 1})
        elif request["op"] == "fork":
            fork(sock, request, fds, children, poll)
        for fd in fds:
            os.close(fd)


main()
