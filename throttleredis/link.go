package throttleredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/httpbody"
)

// A Subscriber is a client of go-redis that runs scripts and subscribes to channels: a
// Client, ClusterClient, Ring or failover client.
type Subscriber interface {
	redis.Scripter
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// A link is the connection to a Redis over which processes exchange messages: a channel, and hashes
// with what processes fetch that have missed messages. An Exchange has one, and a Store in Mode
// Eventual one for each region. Its methods may be called concurrently.
type link struct {
	client  Subscriber
	channel string        // begins all keys. It has a hash tag, so that all are on one node of a cluster or ring
	timeout time.Duration // of a round trip

	maxPause     time.Duration // longest pause before an attempt to connect
	pingInterval time.Duration // idle time after which the subscription is tested

	onOperation func(name string, took time.Duration, err error) // called after each round trip; does not panic
}

// linkEvents are the functions that a link calls, one at a time.
type linkEvents struct {
	connected func()               // messages arrive from now on
	lost      func(err error)      // no more messages arrive; err is nil if the context ended
	receive   func(message string) // called with each message
}

func (l *link) key(name string) string { return l.channel + ":" + name }

// run runs a script within the timeout, for a goroutine without a caller: a panic of the client, or
// of a hook of the client, becomes an error.
func (l *link) run(ctx context.Context, name string, s *redis.Script, keys []string, args ...any) (result *redis.Cmd) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	start := time.Now()
	defer func() {
		if v := recover(); v != nil {
			result = redis.NewCmd(ctx)
			result.SetErr(fmt.Errorf("the client panicked: %v", v))
		}
		if err := result.Err(); err != nil {
			result.SetErr(fmt.Errorf("throttleredis: %s: %w", name, err))
		}
		l.onOperation(name, time.Since(start), result.Err())
	}()
	return s.Run(ctx, l.client, keys, args...)
}

// A storedField is a field of a hash, and the time since it was stored.
type storedField struct {
	name, value string
	age         time.Duration
}

// maxFetched is the maximum number of hashes of which one script returns fields.
const maxFetched = 16

var fetchScript = redis.NewScript(readLua("fetch"))

// fetch calls receive with the fields of hashes, a part of each of them at a time.
func (l *link) fetch(ctx context.Context, names []string, receive func(name string, fields []storedField)) error {
	cursors, names := make(map[string]string, len(names)), slices.Clip(names)
	for len(names) > 0 {
		n := min(len(names), maxFetched)
		batch, unfinished := names[:n], names[n:]
		var keys []string
		var args []any
		for _, name := range batch {
			keys, args = append(keys, l.key(name)), append(args, cursors[name])
		}
		found, err := l.run(ctx, "fetch", fetchScript, keys, args...).Slice()
		if err != nil {
			return err
		}
		for i, name := range batch[:min(n, len(found))] {
			cursor, fields := parseStored(found[i])
			if receive(name, fields); cursor != "" && cursor != "0" {
				cursors[name] = cursor
				unfinished = append(unfinished, name)
			}
		}
		names = unfinished
	}
	return nil
}

// parseStored parses the result of fetch.lua for a hash.
func parseStored(found any) (cursor string, fields []storedField) {
	list, _ := found.([]any)
	if len(list) == 0 {
		return "", nil
	}
	cursor, _ = list[0].(string)
	for list = list[1:]; len(list) >= 3; list = list[3:] {
		name, _ := list[0].(string)
		age, _ := list[1].(int64)
		value, _ := list[2].(string)
		fields = append(fields, storedField{name, value, time.Duration(min(max(age, 0), maxUnits)) * time.Microsecond})
	}
	return cursor, fields
}

// subscribe receives messages until ctx is done, and connects again after each failure.
func (l *link) subscribe(ctx context.Context, e linkEvents) {
	pauses := retryPauses(l.maxPause)
	for failures := 1; ctx.Err() == nil; failures++ {
		began := time.Now()
		err := l.receiveAll(ctx, e)
		if ctx.Err() != nil {
			err = nil
		}
		e.lost(err)
		if time.Since(began) > l.pingInterval {
			failures = 1
		}
		_ = httpbody.Sleep(ctx, nil, pauses.Delay(failures, 0))
	}
}

// minConnectTimeout is the minimum time for an attempt to subscribe: it takes several round trips.
const minConnectTimeout = time.Second

// receiveAll receives messages until an error occurs. A server that responds to a ping may
// still be the wrong one: when a server of a ring fails or recovers, the channel moves to
// another one. Therefore receiveAll tests that it receives what this process publishes.
func (l *link) receiveAll(ctx context.Context, e linkEvents) (err error) {
	defer func() {
		// A Ring panics if none of its servers is up.
		if r := recover(); r != nil {
			err = fmt.Errorf("throttleredis: subscribe: %v", r)
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timeout := max(l.timeout, minConnectTimeout)
	connecting, stopConnecting := context.WithTimeout(ctx, timeout)
	sub := l.client.Subscribe(connecting, l.channel)
	stopConnecting()
	// If Subscribe failed, the client connects again when it receives.
	receiving, stopReceiving := context.WithTimeout(ctx, timeout)
	defer stopReceiving()
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { sub.Close() })
	defer stop()
	for pinged := false; ; {
		m, err := sub.ReceiveTimeout(receiving, l.pingInterval)
		var slow net.Error
		switch {
		case err == nil:
			pinged = false
			switch m := m.(type) {
			case *redis.Subscription:
				receiving = ctx
				e.connected()
			case *redis.Message:
				e.receive(m.Payload)
			}
		case pinged || receiving.Err() != nil || !errors.As(err, &slow) || !slow.Timeout():
			return err
		default:
			l.run(ctx, "ping", pingScript, []string{l.channel}) // a failure shows in the missing message
			pinged = true
		}
	}
}

// pingScript sends an empty message, which tests whether messages arrive.
var pingScript = redis.NewScript(`return redis.call('PUBLISH', KEYS[1], '')`)

// A signal wakes a goroutine that has work to do.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default: // a signal is pending
	}
}

// work calls do after each signal, until ctx is done. While do returns an error, it calls do again
// after a delay of at most maxDelay, so that an unreachable Redis costs little.
func (s signal) work(ctx context.Context, maxDelay time.Duration, do func(context.Context) error) {
	for ctx.Err() == nil {
		select {
		case <-s:
		case <-ctx.Done():
			return
		}
		pauses := retryPauses(maxDelay)
		for failures := 1; do(ctx) != nil && httpbody.Sleep(ctx, nil, pauses.Delay(failures, 0)) == nil; failures++ {
		}
	}
}

// retryPauses returns the policy for the pauses between attempts to reach Redis.
func retryPauses(longest time.Duration) backoff.Policy {
	return backoff.Exponential{Base: 50 * time.Millisecond, Max: longest, Jitter: backoff.None}
}

// A background is a group of goroutines that end together.
type background struct {
	cancel context.CancelFunc
	ended  chan struct{} // closed when all goroutines have ended
}

// start starts a goroutine for each of tasks, which return when their context is done.
func (b *background) start(tasks ...func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel, b.ended = cancel, make(chan struct{})
	var running sync.WaitGroup
	for _, task := range tasks {
		running.Go(func() { task(ctx) })
	}
	go func() {
		running.Wait()
		close(b.ended)
	}()
}

// awaitClosed waits until done is closed. If ctx ends first, it returns the cause of ctx.
func awaitClosed(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
