package ReadLimit;

# Loaded into every test of memcached's: reading from a server that does not answer ends after some seconds.
#
# Where memcached 1.6.45 answers with fewer lines than 1.6.18 the tests of 1.6.18 would wait for ever. So the one test fails that waits,
# and those after it are run.

use strict;
use warnings;

use IO::Socket;
use Socket qw(SOL_SOCKET SO_RCVTIMEO);

my $seconds = 8;
my $connect = \&IO::Socket::connect;

no warnings 'redefine';
*IO::Socket::connect = sub {
    my $result = $connect->(@_);
    setsockopt($_[0], SOL_SOCKET, SO_RCVTIMEO, pack('l!l!', $seconds, 0)) if $result;
    return $result;
};

1;
