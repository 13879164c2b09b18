import json
import os
import subprocess

import pytest


@pytest.fixture(scope="session")
def writer():
    """The Go program that writes: testkit/campaign/writer, which readers/test builds."""
    path = os.environ.get("BALE_WRITER")
    if not path:
        if os.environ.get("BALE_REQUIRE_READERS"):
            pytest.fail("BALE_WRITER is not set: run readers/test")
        pytest.skip("BALE_WRITER is not set: run readers/test")
    return path


class Fleet:
    """A running writer. Each phase is all that is in its Redis by then."""

    def __init__(self, *args):
        self.process = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __iter__(self):
        for line in self.process.stdout:
            yield json.loads(line)
            self.next()

    def next(self):
        try:
            print(file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass  # after the last phase

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.stdout.close()
        assert self.process.wait(30) == 0


@pytest.fixture
def fleet(writer):
    with Fleet(writer, "fleet") as f:
        yield f


@pytest.fixture
def cluster(writer):
    with Fleet(writer, "fleet", "cluster") as f:
        yield f
