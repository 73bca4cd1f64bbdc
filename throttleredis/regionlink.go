package throttleredis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A regionLink is the connection of a host to the Redis of a region. The methods may be
// called concurrently.
type regionLink interface {
	// publish stores and sends counters. It reports whether counters of this host were stored
	// before.
	publish(ctx context.Context, p *usagePublication) (existed bool, err error)

	// fetch calls receive with the stored counters of each host, in one or several parts.
	fetch(ctx context.Context, receive func(host uint64, counters []storedUsage)) error

	// subscribe calls the functions of s until ctx is done.
	subscribe(ctx context.Context, s linkEvents)
}

// linkEvents are the functions that a regionLink calls, one at a time.
type linkEvents struct {
	connected func()
	lost      func(err error)
	receive   func(message string)
}

// A usagePublication is what a host stores and sends in one round trip.
type usagePublication struct {
	host    uint64
	message string
	keep    time.Duration // for which the stored counters are kept
	replace bool          // nothing else is to remain stored
	removed []string      // names of counters
	stored  []storedUsage // without ages
}

// A redisLink is a regionLink to a Redis.
type redisLink struct {
	client      Subscriber
	prefix      string
	timeout     time.Duration                                    // of a round trip
	onOperation func(name string, took time.Duration, err error) // does not panic

	pingInterval time.Duration // idle time after which the subscription is tested
}

// maxConnectPause is the longest pause before an attempt to connect. It is short, so that the
// totals agree within a second after a partition.
const maxConnectPause = 100 * time.Millisecond

var usagePublishScript, usageFetchScript = redis.NewScript(readLua("usage_publish")), redis.NewScript(readLua("usage_fetch"))

// maxFetchedHosts is the maximum number of hosts whose counters one script returns.
const maxFetchedHosts = 16

// All keys share a hash tag, so that they are on one node of a cluster or ring.
func (l *redisLink) channel() string        { return "{" + l.prefix + ":usage}" }
func (l *redisLink) hostsKey() string       { return l.channel() + ":hosts" }
func (l *redisLink) key(host string) string { return l.channel() + ":" + host }

// hostName returns the name of a host in keys.
func hostName(host uint64) string { return strconv.FormatUint(host, 36) }

// run runs a script within the timeout.
func (l *redisLink) run(ctx context.Context, name string, s *redis.Script, keys []string, args []any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	start := time.Now()
	reply, err := runScript(ctx, l.client, s, keys, args)
	if err != nil {
		err = fmt.Errorf("throttleredis: %s: %w", name, err)
	}
	l.onOperation(name, time.Since(start), err)
	return reply, err
}

// runScript runs s on a goroutine without a caller. A panic of the client, or of a hook of the
// client, becomes an error.
func runScript(ctx context.Context, client redis.Scripter, s *redis.Script, keys []string, args []any) (reply any, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the client panicked: %v", v)
		}
	}()
	return s.Run(ctx, client, keys, args...).Result()
}

func (l *redisLink) publish(ctx context.Context, p *usagePublication) (existed bool, err error) {
	host, replace := hostName(p.host), 0
	if p.replace {
		replace = 1
	}
	args := []any{l.channel(), host, p.keep.Milliseconds(), replace, p.message, len(p.removed)}
	for _, name := range p.removed {
		args = append(args, name)
	}
	for _, f := range p.stored {
		args = append(args, f.name, f.value)
	}
	reply, err := l.run(ctx, "publish", usagePublishScript, []string{l.hostsKey(), l.key(host)}, args)
	return reply == int64(1), err
}

func (l *redisLink) fetch(ctx context.Context, receive func(uint64, []storedUsage)) error {
	reply, err := l.run(ctx, "fetch", usageHostsScript, []string{l.hostsKey()}, nil)
	if err != nil {
		return err
	}
	hosts := stringsOf(reply)
	for len(hosts) > 0 {
		n := min(len(hosts), maxFetchedHosts)
		if err := l.fetchHosts(ctx, hosts[:n], receive); err != nil {
			return err
		}
		hosts = hosts[n:]
	}
	return nil
}

// usageHostsScript returns the hosts that have stored counters.
var usageHostsScript = redis.NewScript(`return redis.call('ZRANGE', KEYS[1], 0, -1)`)

// stringsOf returns the strings of a reply that is a list.
func stringsOf(reply any) (all []string) {
	list, _ := reply.([]any)
	for _, v := range list {
		s, _ := v.(string)
		all = append(all, s)
	}
	return all
}

// fetchHosts fetches the counters of hosts, a part of each of them at a time.
func (l *redisLink) fetchHosts(ctx context.Context, hosts []string, receive func(uint64, []storedUsage)) error {
	cursors := make(map[string]string, len(hosts))
	for len(hosts) > 0 {
		var keys []string
		var args []any
		for _, h := range hosts {
			cursor := cursors[h]
			if cursor == "" {
				cursor = "0"
			}
			keys, args = append(keys, l.key(h)), append(args, cursor)
		}
		reply, err := l.run(ctx, "fetch", usageFetchScript, keys, args)
		if err != nil {
			return err
		}
		found, _ := reply.([]any)
		var unfinished []string
		for i, h := range hosts {
			if i >= len(found) {
				break
			}
			cursor, counters := parseStoredUsage(found[i])
			if host, err := strconv.ParseUint(h, 36, 64); err == nil {
				receive(host, counters)
			}
			if cursor != "" && cursor != "0" {
				cursors[h] = cursor
				unfinished = append(unfinished, h)
			}
		}
		hosts = unfinished
	}
	return nil
}

// parseStoredUsage parses the result of usage_fetch.lua for a host.
func parseStoredUsage(found any) (cursor string, counters []storedUsage) {
	list, _ := found.([]any)
	if len(list) == 0 {
		return "", nil
	}
	cursor, _ = list[0].(string)
	for list = list[1:]; len(list) >= 3; list = list[3:] {
		name, _ := list[0].(string)
		age, _ := list[1].(int64)
		value, _ := list[2].(string)
		counters = append(counters, storedUsage{name, value, time.Duration(min(max(age, 0), maxUnits)) * time.Microsecond})
	}
	return cursor, counters
}

func (l *redisLink) subscribe(ctx context.Context, e linkEvents) {
	s := subscription{
		client: l.client, channel: l.channel(), connectTimeout: l.timeout, maxPause: maxConnectPause, pingInterval: l.pingInterval,
		ping:      func() { l.ping(ctx) },
		connected: e.connected, lost: e.lost, receive: e.receive,
	}
	s.run(ctx)
}

// usagePingScript sends an empty message, which tests whether messages arrive.
var usagePingScript = redis.NewScript(`return redis.call('PUBLISH', KEYS[1], '')`)

func (l *redisLink) ping(ctx context.Context) {
	_, _ = l.run(ctx, "ping", usagePingScript, []string{l.channel()}, nil) // a failure shows in the missing message
}
