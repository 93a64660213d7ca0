//! memcached bytes to requests and replies, as pure functions over slices, for servers and clients.
