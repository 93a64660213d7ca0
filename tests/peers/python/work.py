"""Does one program of real work through a Python client: work.py CLIENT HOST PORT. Prints the Test Anything Protocol."""

import os
import random
import sys
import threading
import time

from clients import CLIENTS

MEBIBYTE = 1 << 20
SEED = int(os.environ.get("VERACACHE_SEED", "20"))


class Work:
    """The program; each method named test_* is one test, and gets a client of its own."""

    def __init__(self, make):
        self.make = make

    def bytes(self, name, length):
        """Bytes that follow from a name, every value of a byte among them."""
        return random.Random(f"{SEED}/{name}").randbytes(length)

    def test_values_of_many_sizes(self, client):
        sizes = [0, 1, 2, 30, 100, 1000, 1023, 1024, 1025, 4096, 16384, 65535, 65536, 250000, 524288, MEBIBYTE - 600]
        for size in sizes:
            assert client.set(f"size-{size}", self.bytes(f"size-{size}", size)), size
        for size in sizes:
            assert client.get(f"size-{size}") == self.bytes(f"size-{size}", size), size

    def test_every_byte_in_a_value(self, client):
        for value in [b"\r\n", b"\r\nEND\r\n", b"\0", b" ", b"END", b"VALUE a 0 1\r\nx\r\n", bytes(range(256))]:
            assert client.set("awkward", value)
            assert client.get("awkward") == value, value

    def test_keys_of_many_lengths(self, client):
        keys = ["k" * length for length in (1, 2, 7, 8, 9, 63, 64, 100, 249, 250)]
        for key in keys:
            assert client.set(key, key.encode())
        for key in keys:
            assert client.get(key) == key.encode(), len(key)

    def test_overwriting(self, client):
        for round in range(300):
            value = self.bytes(f"overwrite-{round}", round * 37 % 5000)
            assert client.set("overwrite", value)
            assert client.get("overwrite") == value, round

    def test_a_missing_key(self, client):
        assert client.get("never-set") is None
        assert not client.delete("never-set")

    def test_add_and_replace(self, client):
        assert not client.replace("conditional", b"none")
        assert client.get("conditional") is None
        assert client.add("conditional", b"first")
        assert not client.add("conditional", b"second")
        assert client.get("conditional") == b"first"
        assert client.replace("conditional", b"third")
        assert client.get("conditional") == b"third"

    def test_delete(self, client):
        assert client.set("gone", b"x")
        assert client.delete("gone")
        assert client.get("gone") is None
        assert client.add("gone", b"again")
        assert client.get("gone") == b"again"

    def test_append_and_prepend(self, client):
        assert not client.append("joined", b"x")
        assert not client.prepend("joined", b"x")
        assert client.set("joined", b"middle")
        assert client.append("joined", b" end")
        assert client.prepend("joined", b"start ")
        assert client.get("joined") == b"start middle end"
        whole = b"start middle end"
        for part in range(50):
            piece = self.bytes(f"piece-{part}", 200)
            assert client.append("joined", piece)
            whole += piece
        assert client.get("joined") == whole

    def test_compare_and_swap(self, client):
        assert client.set("swap", b"one")
        value, token = client.gets("swap")
        assert value == b"one"
        assert client.cas("swap", b"two", token)
        assert not client.cas("swap", b"three", token)
        assert client.get("swap") == b"two"
        other = self.make()
        value, token = client.gets("swap")
        assert value == b"two"
        assert other.set("swap", b"by another")
        assert not client.cas("swap", b"four", token)
        assert client.get("swap") == b"by another"
        other.close()

    def test_counters(self, client):
        assert client.incr("no-counter", 1) is None
        client.new_counter("counter", 10)
        assert client.incr("counter", 1) == 11
        assert client.incr("counter", 100) == 111
        assert client.decr("counter", 1) == 110
        assert client.decr("counter", 1000) == 0
        client.new_counter("counter", 2**63)
        assert client.incr("counter", 2**31 - 1) == 2**63 + 2**31 - 1

    def test_expiry(self, client):
        assert client.set("short", b"x", 1)
        assert client.set("long", b"y", 1000)
        assert client.set("forever", b"z", 0)
        until_gone(client, "short")
        assert client.get("long") == b"y"
        assert client.get("forever") == b"z"

    def test_touch(self, client):
        assert client.set("touched", b"x", 1)
        assert client.touch("touched", 1000)
        assert client.set("shortened", b"y", 1000)
        assert client.touch("shortened", 1)
        assert not client.touch("never-set", 10)
        until_gone(client, "shortened")
        time.sleep(1)
        assert client.get("touched") == b"x"

    def test_many_at_once(self, client):
        values = {f"multi-{n}": self.bytes(f"multi-{n}", n * 13 % 3000) for n in range(500)}
        client.set_multi(values)
        assert client.get_multi(list(values) + [f"absent-{n}" for n in range(200)]) == values

    def test_leases(self, client):
        value, token = client.lease("leased")
        assert value is None and token
        # Who comes second gets nothing either, and waits for a while before that.
        assert self.make().lease("leased")[0] is None
        assert client.cas("leased", b"filled", token)
        assert client.lease("leased")[0] == b"filled"
        # Of those who find a stale value, the first is told to renew it and the others are given it.
        assert client.mark_stale("leased")
        assert client.get_or_recache("leased") is None
        assert client.get_or_recache("leased") == b"filled"

    def test_types_and_flags(self, client):
        for value in [0, -1, 12345678901234567890, "text", "ünïcödé ✓", 1.5, (1, "two", None), {"a": [1, 2]}]:
            assert client.set_object("object", value)
            got = client.get_object("object")
            assert got == value and type(got) is type(value), (value, got)

    def test_a_value_that_is_too_large(self, client):
        assert client.set("large", b"small")
        assert not client.set("large", self.bytes("large", MEBIBYTE + 10))
        assert client.get("large") is None
        assert client.set("large", b"small again")
        assert client.get("large") == b"small again"

    def test_several_connections_at_once(self, client):
        client.new_counter("shared", 0)
        failures = []

        def run(number):
            mine = self.make()
            try:
                for turn in range(200):
                    value = self.bytes(f"{number}-{turn}", turn * 31 % 4000)
                    assert mine.set(f"mine-{number}", value)
                    assert mine.get(f"mine-{number}") == value, turn
                    assert mine.incr("shared", 1) is not None
                    theirs = mine.get(f"mine-{(number + 1) % 8}")
                    known = (None, *(self.bytes(f"{(number + 1) % 8}-{t}", t * 31 % 4000) for t in near(theirs)))
                    assert theirs in known, turn
            except Exception as error:
                failures.append(f"{number}: {error!r}")
            finally:
                mine.close()

        threads = [threading.Thread(target=run, args=[number]) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures
        assert client.incr("shared", 1) == 8 * 200 + 1

    def test_flush(self, client):
        assert client.set("flushed", b"x")
        client.flush()
        assert client.get("flushed") is None
        assert client.set("flushed", b"y")
        assert client.get("flushed") == b"y"


def near(value):
    """The turns whose value has this length, so that a reader can tell whose and which value it has read."""
    return [] if value is None else [turn for turn in range(200) if turn * 31 % 4000 == len(value)]


def until_gone(client, key):
    """Expiry is exact to the second of the server's clock: a second of life may take two to end."""
    deadline = time.monotonic() + 4
    while client.get(key) is not None:
        assert time.monotonic() < deadline, f"{key} does not expire"
        time.sleep(0.05)


def main():
    name, host, port = sys.argv[1:]
    make = lambda: CLIENTS[name](host, int(port))
    work = Work(make)
    tests = [test for test in dir(Work) if test.startswith("test_") and test not in CLIENTS[name].cannot]
    print(f"# seed {SEED}\n1..{len(tests)}")
    failed = False
    for number, test in enumerate(tests, 1):
        client = make()
        try:
            getattr(work, test)(client)
            print(f"ok {number} - {test}")
        except Exception as error:
            failed = True
            line = error.__traceback__
            while line.tb_next:
                line = line.tb_next
            print(f"not ok {number} - {test}: {error!r:.300} at line {line.tb_lineno} of {line.tb_frame.f_code.co_name}")
        finally:
            client.close()
    sys.exit(failed)


if __name__ == "__main__":
    main()
