package fleet

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// A Bus transports messages between processes. Messages may be lost, repeated, late or out of
// order: an Exchange deals with all of that. A Bus needs no access control of its own.
type Bus interface {
	// Publish sends m to all subscribers. If m.Keep is not zero, the Bus keeps m for that
	// time, in place of an earlier Message with the same Account and Quota, and returns it to
	// Fetch; a Bus that cannot keep messages may ignore that. Publish must return immediately,
	// without waiting for subscribers.
	Publish(m Message)

	// Subscribe calls receive with each Message that is published, from now until ctx is
	// done. These may include the messages of the same process. Subscribe returns
	// immediately. receive is safe for concurrent use.
	Subscribe(ctx context.Context, receive func(m Message))

	// Fetch passes each Message that is kept of account to subscribers, and then a Message
	// that has this Account and no Content. Fetch must return immediately. Without the last
	// Message, the first requests of the account wait for 100 ms.
	Fetch(account string)
}

// A Message is an encoded quota.Update.
type Message struct {
	// Account and Quota identify what the message concerns. They contain neither spaces nor
	// control characters.
	Account, Quota string

	// Content is the authenticated content. Empty means that Fetch has returned all that is
	// kept of Account.
	Content string

	// Keep is how long the Bus keeps the message for Fetch. Zero means that it need not be
	// kept. Received messages do not need it.
	Keep time.Duration

	// Age is the time since the message was published, as far as the Bus knows. The Exchange
	// adds delays that it detects itself. A Bus that does not store messages may leave it
	// zero.
	Age time.Duration
}

// An Exchange implements quota.Exchange over a Bus. Each Tracker should have an Exchange of its
// own; several may share a Bus. The fields must not be changed after the first use.
//
// Each message has a sequence number and a time, which are authenticated with it:
//
//   - A message that was received before is ignored, and so is one whose number is more than
//     1,024 below the highest of its sender.
//   - A message that arrives later than those around it is as much older, whatever the Bus says
//     about its age: what it announced may be over by then.
//   - A message whose time differs by more than a day from that of this process is ignored.
//
// Messages that Fetch returns were published long ago, so their numbers may be low. They are
// accepted unless the Exchange has the same or a later one of the same quota, and only if they
// are still valid. So a Bus under control of an attacker can repeat a hold to a process that has not
// received it yet, but only until the end that it had.
//
// Limitation: the clocks of processes need not agree, so a process that has not received anything
// from a sender cannot tell how old the first message is, and relies on Message.Age.
//
// The Exchange keeps the latest valid update of each quota, also of accounts that its Tracker does
// not use yet. Its memory is bounded: 1,024 senders, and 1,024 accounts of 8 quotas.
type Exchange struct {
	// Bus transports the messages. It must be set.
	Bus Bus

	// Secret is the key that authenticates messages, and of the hashes in them. All processes
	// that share must have the same, and it must not be known to others. If it is empty, only
	// accounts without credentials are shared.
	Secret []byte

	// Clock is the source of time, usually that of the Tracker. Nil means the system clock.
	Clock throttle.Clock

	once  sync.Once
	began time.Time // times are counted from here, by a monotonic clock if there is one

	mu            sync.Mutex
	sequence      uint64 // of the latest message
	subscriptions []*subscription
}

// A subscription receives updates for one Tracker.
type subscription struct {
	exchange *Exchange
	receive  func(quota.Update)

	mu    sync.Mutex
	guard guard
	store store[stored]
}

// stored is an update that a process may fetch later.
type stored struct {
	update    quota.Update
	sequence  uint64
	published time.Time
}

// Validate returns an error that describes how to correct e, or nil if e is valid.
func (e *Exchange) Validate() error {
	if e.Bus == nil {
		return errors.New("fleet: exchange: Bus is nil: set it, for example to a LocalBus")
	}
	return nil
}

// start reads the clock for the first time. It panics if e is invalid.
func (e *Exchange) start() {
	e.once.Do(func() {
		if err := e.Validate(); err != nil {
			panic(err)
		}
		e.began = throttle.ClockOr(e.Clock).Now()
	})
}

// now returns the time by a clock that is not set while the process runs.
func (e *Exchange) now() time.Time {
	e.start()
	return e.began.Round(0).Add(throttle.ClockOr(e.Clock).Now().Sub(e.began))
}

// Key implements quota.Exchange. It returns Secret.
func (e *Exchange) Key() []byte { return e.Secret }

// Publish implements quota.Exchange.
func (e *Exchange) Publish(u quota.Update) {
	now, quotaID := e.now(), quotaOf(&u)
	e.mu.Lock()
	e.sequence++
	stamp, subscriptions := stamp{e.sequence, now.UnixMicro()}, e.subscriptions
	e.mu.Unlock()
	keep := u.Keep()
	for _, s := range subscriptions {
		s.mu.Lock()
		if keep > 0 { // what others published of the quota is out of date
			s.store.remove(u.Account, quotaID)
		}
		s.mu.Unlock()
	}
	e.Bus.Publish(Message{Account: u.Account, Quota: quotaID, Content: encode(e.Secret, &u, stamp), Keep: keep})
}

// quotaOf returns what identifies the quota of u in messages.
func quotaOf(u *quota.Update) string { return strconv.FormatUint(u.Route, 36) }

// Subscribe implements quota.Exchange.
func (e *Exchange) Subscribe(ctx context.Context, receive func(quota.Update)) {
	e.start()
	s := &subscription{exchange: e, receive: receive}
	e.mu.Lock()
	e.subscriptions = append(slices.Clone(e.subscriptions), s)
	e.mu.Unlock()
	context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.subscriptions = slices.DeleteFunc(slices.Clone(e.subscriptions), func(o *subscription) bool { return o == s })
	})
	e.Bus.Subscribe(ctx, func(m Message) {
		if ctx.Err() == nil {
			s.deliver(m)
		}
	})
}

// Fetch implements quota.Exchange. Updates that e has received before are passed to subscribers
// immediately.
func (e *Exchange) Fetch(account string) {
	now := e.now()
	e.mu.Lock()
	subscriptions := e.subscriptions
	e.mu.Unlock()
	for _, s := range subscriptions {
		s.mu.Lock()
		s.guard.fetch(account, now)
		known := s.store.get(account, now)
		s.mu.Unlock()
		for _, k := range known {
			k.update.Age = now.Sub(k.published)
			s.receive(k.update)
		}
	}
	e.Bus.Fetch(account)
}

// deliver passes the update in m to the subscriber, if it is valid and new.
func (s *subscription) deliver(m Message) {
	if m.Content == "" {
		s.mu.Lock()
		s.guard.fetched(m.Account)
		s.mu.Unlock()
		s.receive(quota.Update{Account: m.Account})
		return
	}
	u, stamp, ok := decode(s.exchange.Secret, m.Account, m.Content)
	if ok && s.accept(&u, stamp, m.Age) {
		s.receive(u)
	}
}

// accept reports whether u is new. If so, it sets u.Age, and stores u for Fetch.
func (s *subscription) accept(u *quota.Update, stamp stamp, busAge time.Duration) bool {
	now, quotaID := s.exchange.now(), quotaOf(u)
	s.mu.Lock()
	defer s.mu.Unlock()
	age, isNew, ok := s.guard.accept(u.Sender, stamp, busAge, now)
	if !ok {
		return false
	}
	known, found := s.store.find(u.Account, quotaID, now)
	latest := !found || known.isBefore(u.Sender, stamp.Sequence, now.Add(-age))
	valid := u.Keep() - age
	if !isNew && !(valid > 0 && latest && s.guard.isFetching(u.Account, now)) {
		return false
	}
	u.Age = age
	if valid > 0 && latest {
		s.store.put(u.Account, quotaID, stored{*u, stamp.Sequence, now.Add(-age)}, now.Add(valid), now)
	}
	return true
}

// isBefore reports whether k was published before an update of sender with this number.
func (k *stored) isBefore(sender, sequence uint64, published time.Time) bool {
	if k.update.Sender == sender {
		return k.sequence < sequence
	}
	return k.published.Before(published)
}
