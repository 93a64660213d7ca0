"""Python clients under one set of names. What a client cannot do at all is listed in `cannot`."""

import importlib


class Client:
    cannot = frozenset(["test_leases"])

    def set_object(self, key, value):
        return self.set(key, value)

    def get_object(self, key):
        return self.get(key)

    def new_counter(self, key, value):
        assert self.set(key, str(value).encode())


class Pylibmc(Client):
    binary = False

    def __init__(self, host, port):
        self.module = importlib.import_module("pylibmc")
        self.client = self.module.Client([f"{host}:{port}"], binary=self.binary, behaviors={"cas": True, "tcp_nodelay": True})

    def missing(self, call, *args):
        try:
            return call(*args)
        except self.module.NotFound:
            return None

    def set(self, key, value, ttl=0):
        try:
            return self.client.set(key, value, time=ttl)
        except (self.module.TooBig, self.module.Error) as error:
            # Any other failure must not look like a refusal.
            if len(value) <= 1 << 20:
                raise error
            return False

    def get(self, key):
        return self.client.get(key)

    def add(self, key, value):
        return self.client.add(key, value)

    def replace(self, key, value):
        return self.missing(self.client.replace, key, value)

    def append(self, key, value):
        return self.missing(self.client.append, key, value)

    def prepend(self, key, value):
        return self.missing(self.client.prepend, key, value)

    def delete(self, key):
        return self.missing(self.client.delete, key)

    def gets(self, key):
        return self.client.gets(key)

    def cas(self, key, value, token):
        return self.client.cas(key, value, token)

    def incr(self, key, by):
        return self.missing(self.client.incr, key, by)

    def decr(self, key, by):
        return self.missing(self.client.decr, key, by)

    def touch(self, key, ttl):
        return self.missing(self.client.touch, key, ttl)

    def set_multi(self, values):
        assert self.client.set_multi(values) == []

    def get_multi(self, keys):
        return self.client.get_multi(keys)

    def flush(self):
        assert self.client.flush_all()

    def close(self):
        self.client.disconnect_all()


class PylibmcBinary(Pylibmc):
    binary = True
    # The libmemcached 1.0.16 that it carries waits out a timeout of 5 s after each binary touch, whoever the server is.
    cannot = Client.cannot | {"test_touch"}


class PythonMemcached(Client):
    def __init__(self, host, port):
        memcache = importlib.import_module("memcache")
        # The client refuses large values by itself unless it is told not to.
        self.client = memcache.Client([f"{host}:{port}"], cache_cas=True, server_max_value_length=0, check_keys=True)

    def set(self, key, value, ttl=0):
        return bool(self.client.set(key, value, time=ttl))

    def get(self, key):
        return self.client.get(key)

    def add(self, key, value):
        return self.client.add(key, value)

    def replace(self, key, value):
        return self.client.replace(key, value)

    def append(self, key, value):
        return self.client.append(key, value)

    def prepend(self, key, value):
        return self.client.prepend(key, value)

    def delete(self, key):
        return self.client.delete(key)

    def gets(self, key):
        self.client.reset_cas()
        return self.client.gets(key), self.client.cas_ids[key.encode()]

    def cas(self, key, value, token):
        self.client.cas_ids[key.encode()] = token
        return self.client.cas(key, value)

    def incr(self, key, by):
        return self.client.incr(key, by)

    def decr(self, key, by):
        return self.client.decr(key, by)

    def touch(self, key, ttl):
        return self.client.touch(key, ttl)

    def set_multi(self, values):
        assert self.client.set_multi(values) == []

    def get_multi(self, keys):
        return self.client.get_multi(keys)

    def flush(self):
        self.client.flush_all()

    def close(self):
        self.client.disconnect_all()


class Bmemcached(Client):
    # It has neither command, and its counters begin by themselves.
    cannot = Client.cannot | {"test_append_and_prepend", "test_touch", "test_counters"}

    def __init__(self, host, port):
        bmemcached = importlib.import_module("bmemcached")
        self.client = bmemcached.Client([f"{host}:{port}"])

    def set(self, key, value, ttl=0):
        exceptions = importlib.import_module("bmemcached.exceptions")
        try:
            return self.client.set(key, value, time=ttl, compress_level=0)
        except exceptions.MemcachedException:
            if len(value) <= 1 << 20:
                raise
            return False

    def get(self, key):
        return self.client.get(key)

    def add(self, key, value):
        return self.client.add(key, value)

    def replace(self, key, value):
        return self.client.replace(key, value)

    def delete(self, key):
        # Its own delete takes a missing key for success.
        present = self.client.get(key) is not None
        assert self.client.delete(key)
        return present

    def gets(self, key):
        return self.client.gets(key)

    def cas(self, key, value, token):
        return self.client.cas(key, value, token)

    def new_counter(self, key, value):
        self.client.delete(key)
        assert self.client.incr(key, value) == 0

    def incr(self, key, by):
        return self.client.incr(key, by)

    def set_multi(self, values):
        assert self.client.set_multi(values) == []

    def get_multi(self, keys):
        return self.client.get_multi(keys)

    def flush(self):
        assert self.client.flush_all()

    def close(self):
        self.client.disconnect_all()


class MetaMemcache(Client):
    cannot = frozenset()

    def __init__(self, host, port):
        meta = importlib.import_module("meta_memcache")
        self.meta = meta
        # Compressed pieces cannot be appended to one another. With its own small buffer it reads large values at 40 kB/s.
        plain = type("Plain", (meta.MixedSerializer,), {"COMPRESSION_THRESHOLD": 1 << 30})
        self.client = meta.CacheClient.cache_client_from_servers(
            servers=[meta.ServerAddress(host, port)],
            connection_pool_factory_fn=meta.connection_pool_factory_builder(
                recv_timeout=10, connection_timeout=10, read_buffer_size=1 << 16
            ),
            serializer=plain(),
        )

    def set(self, key, value, ttl=0, mode=None):
        mode = mode or self.meta.SetMode.SET
        try:
            return self.client.set(key, value, ttl=ttl, set_mode=mode)
        except self.meta.MemcacheServerError:
            if len(value) <= 1 << 20:
                raise
            return False

    def get(self, key):
        return self.client.get(key)

    def add(self, key, value):
        return self.set(key, value, mode=self.meta.SetMode.ADD)

    def replace(self, key, value):
        return self.set(key, value, mode=self.meta.SetMode.REPLACE)

    def append(self, key, value):
        return self.set(key, value, mode=self.meta.SetMode.APPEND)

    def prepend(self, key, value):
        return self.set(key, value, mode=self.meta.SetMode.PREPEND)

    def delete(self, key):
        return self.client.delete(key)

    def gets(self, key):
        return self.client.get_cas(key)

    def cas(self, key, value, token):
        return self.client.set(key, value, ttl=0, cas_token=token)

    def new_counter(self, key, value):
        assert self.client.set(key, value, ttl=0)

    def incr(self, key, by):
        return self.client.delta_and_get(key, by)

    def decr(self, key, by):
        return self.client.delta_and_get(key, -by)

    def touch(self, key, ttl):
        return self.client.touch(key, ttl)

    def set_multi(self, values):
        for key, value in values.items():
            assert self.set(key, value)

    def get_multi(self, keys):
        found = self.client.multi_get(keys)
        return {key.key: value for key, value in found.items() if value is not None}

    def lease(self, key):
        return self.client.get_or_lease_cas(key, self.meta.LeasePolicy(ttl=30, miss_retries=1))

    def mark_stale(self, key):
        return self.client.delete(key, stale_policy=self.meta.StalePolicy(mark_stale_on_deletion_ttl=30))

    def get_or_recache(self, key):
        return self.client.get(key, recache_policy=self.meta.RecachePolicy(ttl=30))

    def flush(self):
        # Meta commands have no flush; the text protocol on the same port does.
        socket = importlib.import_module("socket")
        address = next(iter(self.client.get_counters()))
        with socket.create_connection((address.host, address.port)) as connection:
            connection.sendall(b"flush_all\r\n")
            assert connection.recv(100) == b"OK\r\n"

    def close(self):
        pass


CLIENTS = {
    "pylibmc-text": Pylibmc,
    "pylibmc-binary": PylibmcBinary,
    "python-memcached": PythonMemcached,
    "bmemcached": Bmemcached,
    "meta-memcache": MetaMemcache,
}
