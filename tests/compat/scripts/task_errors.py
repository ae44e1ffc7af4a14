"""Errors, retries, cancels and restarts of tasks and actors, and what their errors tell."""

import os
import tempfile
import time

import ray
import ray.exceptions
from compat_record import record


class Broken(Exception):
    def __init__(self, code):
        super().__init__(f"broken with {code}")
        self.code = code


@ray.remote
def fails(code):
    raise Broken(code)


@ray.remote
def passes_on(ref):
    return ray.get(ref[0])


@ray.remote
def adds(a, b):
    return a + b


@ray.remote(max_retries=0)
def dies():
    os._exit(3)


@ray.remote(max_retries=2)
def dies_twice(folder):
    count = len(os.listdir(folder))
    open(os.path.join(folder, str(count)), "w").close()
    if count < 2:
        os._exit(1)
    return count


@ray.remote(max_retries=2, retry_exceptions=[Broken])
def fails_twice(folder):
    count = len(os.listdir(folder))
    open(os.path.join(folder, str(count)), "w").close()
    if count < 2:
        raise Broken(count)
    return count


@ray.remote
def sleeps():
    time.sleep(600)


@ray.remote(max_restarts=1)
class Fragile:
    def __init__(self):
        self.calls = 0

    def call(self):
        self.calls += 1
        return self.calls

    def die(self):
        os._exit(1)

    def fail(self):
        raise Broken(7)


@ray.remote
class NeverStarts:
    def __init__(self):
        raise Broken(1)

    def call(self):
        pass


@ray.remote(max_concurrency=2)
class Threaded:
    def __init__(self):
        self.waiting = 0

    def meet(self):
        self.waiting += 1
        while self.waiting < 2:
            time.sleep(0.01)
        return "met"


def error_of(ask):
    try:
        ask()
    except Exception as error:
        return error
    return None


def kinds(error):
    names = ("RayError", "RayTaskError", "Broken", "RayActorError", "ActorDiedError", "WorkerCrashedError",
             "TaskCancelledError", "GetTimeoutError", "TimeoutError", "ValueError", "TypeError")  # fmt: skip
    found = {each.__name__ for each in type(error).__mro__}
    return [name for name in names if name in found]


def settled(actor):
    """The first answer of an actor that restarts."""
    while True:
        try:
            return ray.get(actor.call.remote())
        except ray.exceptions.RayActorError:
            time.sleep(0.1)


if __name__ == "__main__":
    ray.init(ignore_reinit_error=True)
    failed = fails.remote(5)
    broken = error_of(lambda: ray.get(failed))
    nested = error_of(lambda: ray.get(passes_on.remote([failed])))
    depends = error_of(lambda: ray.get(adds.remote(failed, 1)))
    crashed = error_of(lambda: ray.get(dies.remote()))
    waits = sleeps.remote()
    late = error_of(lambda: ray.get(waits, timeout=0.5))
    ray.cancel(waits, force=True)
    cancelled = error_of(lambda: ray.get(waits, timeout=60))
    fragile = Fragile.remote()
    first = ray.get([fragile.call.remote(), fragile.call.remote()])
    in_actor = error_of(lambda: ray.get(fragile.fail.remote()))
    died = error_of(lambda: ray.get(fragile.die.remote()))
    restarted = settled(fragile)
    ray.get(fragile.call.remote())
    error_of(lambda: ray.get(fragile.die.remote()))
    gone = error_of(lambda: ray.get(fragile.call.remote()))
    never = error_of(lambda: ray.get(NeverStarts.remote().call.remote()))
    threaded = Threaded.remote()
    ready, rest = ray.wait([adds.remote(1, 2), failed], num_returns=2, timeout=60)
    record(
        broken=kinds(broken),
        code=broken.code if hasattr(broken, "code") else broken.cause.code,
        cause=type(broken.cause).__name__,
        text=["Broken: broken with 5" in str(broken), "in fails" in str(broken), "raise Broken(code)" in str(broken)],
        nested=kinds(nested),
        depends=kinds(depends),
        crashed=kinds(crashed),
        late=kinds(late),
        cancelled=kinds(cancelled),
        retried=[ray.get(dies_twice.remote(tempfile.mkdtemp())), ray.get(fails_twice.remote(tempfile.mkdtemp()))],
        first=first,
        in_actor=kinds(in_actor),
        died=kinds(died),
        restarted=restarted,
        gone=kinds(gone),
        never=[kinds(never), never.actor_init_failed, "broken with 1" in str(never)],
        met=ray.get([threaded.meet.remote(), threaded.meet.remote()]),
        ready=[len(ready), len(rest)],
        wrong=[
            kinds(error_of(lambda: adds(1, 2))),
            kinds(error_of(lambda: ray.get(3))),
            kinds(error_of(lambda: ray.get_actor("nobody"))),
            kinds(error_of(lambda: ray.wait([waits, waits]))),
            kinds(error_of(lambda: Fragile())),
            kinds(error_of(lambda: ray.put(waits))),
        ],
    )
