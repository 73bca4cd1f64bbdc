package throttleredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Subscriber is a client of go-redis that runs scripts and subscribes to channels: a
// Client, ClusterClient, Ring or failover client.
type Subscriber interface {
	redis.Scripter
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// A subscription receives the messages of a channel, and connects again after each failure.
type subscription struct {
	client         Subscriber
	channel        string
	connectTimeout time.Duration // zero: that of the client
	maxPause       time.Duration // longest pause before an attempt to connect
	pingInterval   time.Duration // idle time after which it is tested

	ping      func()               // makes the server send a message to the channel
	connected func()               // called when messages arrive from now on
	lost      func(err error)      // called when no more messages arrive; err is nil if the context ended
	receive   func(payload string) // called with each message
}

// run receives messages until ctx is done.
func (s *subscription) run(ctx context.Context) {
	var delay retryDelay
	for ctx.Err() == nil {
		began := time.Now()
		err := s.receiveAll(ctx)
		if ctx.Err() != nil {
			err = nil
		}
		s.lost(err)
		if time.Since(began) > s.pingInterval {
			delay = 0
		}
		if !sleep(ctx, delay.next(s.maxPause)) {
			return
		}
	}
}

// receiveAll receives messages until an error occurs. A server that responds to a ping may
// still be the wrong one: when a server of a ring fails or recovers, the channel moves to
// another one. Therefore receiveAll tests that it receives what this process publishes.
func (s *subscription) receiveAll(ctx context.Context) (err error) {
	defer func() {
		// A Ring panics if none of its servers is up.
		if r := recover(); r != nil {
			err = fmt.Errorf("throttleredis: subscribe: %v", r)
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	connecting, stopConnecting := s.connectContext(ctx)
	sub := s.client.Subscribe(connecting, s.channel)
	stopConnecting()
	// If Subscribe failed, the client connects again when it receives.
	receiving, stopReceiving := s.connectContext(ctx)
	defer stopReceiving()
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { sub.Close() })
	defer stop()
	for pinged := false; ; {
		m, err := sub.ReceiveTimeout(receiving, s.pingInterval)
		var slow net.Error
		switch {
		case err == nil:
			pinged = false
			if _, ok := m.(*redis.Subscription); ok {
				receiving = ctx
			}
			s.handle(m)
		case pinged || receiving.Err() != nil || !errors.As(err, &slow) || !slow.Timeout():
			return err
		default:
			s.ping()
			pinged = true
		}
	}
}

// connectContext returns a context that ends after connectTimeout.
func (s *subscription) connectContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.connectTimeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, s.connectTimeout)
}

// handle processes what the client received.
func (s *subscription) handle(m any) {
	switch m := m.(type) {
	case *redis.Subscription:
		s.connected()
	case *redis.Message:
		s.receive(m.Payload)
	}
}

// A retryDelay is the delay before the next attempt to reach Redis.
type retryDelay time.Duration

// next doubles the delay, between 50 ms and longest, and returns it.
func (p *retryDelay) next(longest time.Duration) time.Duration {
	*p = min(max(2**p, retryDelay(50*time.Millisecond)), retryDelay(longest))
	return time.Duration(*p)
}

// sleep waits for d. It returns false if ctx is done before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
