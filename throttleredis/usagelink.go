package throttleredis

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A regionLink is the connection of a host to the Redis of a region, for concurrent use.
type regionLink interface {
	// publish stores and sends counters. It reports whether some of this host were stored before.
	publish(ctx context.Context, p *usagePublication) (existed bool, err error)

	// fetchHosts calls receive with the stored counters of each host, in one or several parts.
	fetchHosts(ctx context.Context, receive func(host uint64, counters []storedField)) error

	// subscribe calls the functions of e until ctx is done.
	subscribe(ctx context.Context, e linkEvents)
}

// A usagePublication is what a host stores and sends in one round trip.
type usagePublication struct {
	host    uint64
	message string
	keep    time.Duration // for which the stored counters are kept
	replace bool          // nothing else is to remain stored
	removed []string      // names of counters
	stored  []storedField // without ages
}

// A redisLink is a regionLink to a Redis.
type redisLink struct{ link }

// maxConnectPause is the longest pause before an attempt to connect. It is short, so that the
// totals agree within a second after a partition.
const maxConnectPause = 100 * time.Millisecond

var usagePublishScript = redis.NewScript(readLua("usage_publish"))

func (l *redisLink) publish(ctx context.Context, p *usagePublication) (existed bool, err error) {
	host := strconv.FormatUint(p.host, 36)
	args := []any{l.channel, host, p.keep.Milliseconds(), p.replace, p.message, len(p.removed)}
	for _, name := range p.removed {
		args = append(args, name)
	}
	for _, f := range p.stored {
		args = append(args, f.name, f.value)
	}
	return l.run(ctx, "publish", usagePublishScript, []string{l.key("hosts"), l.key(host)}, args...).Bool()
}

// usageHostsScript returns the hosts that have stored counters.
var usageHostsScript = redis.NewScript(`return redis.call('ZRANGE', KEYS[1], 0, -1)`)

func (l *redisLink) fetchHosts(ctx context.Context, receive func(uint64, []storedField)) error {
	hosts, err := l.run(ctx, "fetch", usageHostsScript, []string{l.key("hosts")}).StringSlice()
	if err != nil {
		return err
	}
	return l.fetch(ctx, hosts, func(name string, counters []storedField) {
		if host, err := strconv.ParseUint(name, 36, 64); err == nil {
			receive(host, counters)
		}
	})
}
