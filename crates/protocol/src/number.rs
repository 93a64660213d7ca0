//! Numbers as memcached reads them from a command line.
