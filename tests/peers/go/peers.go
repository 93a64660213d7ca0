// Package peers names the clients, so that `go mod tidy` keeps them.
package peers

import _ "github.com/bradfitz/gomemcache/memcache"
