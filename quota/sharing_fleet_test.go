package quota_test

import (
	"context"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/quota/fleet"
	"github.com/heed-go/heed/throttle"
)

func init() {
	quota.SetNewExchange(func(b quota.MessageBus, secret []byte, clock throttle.Clock) quota.Exchange {
		return &fleet.Exchange{Bus: testBus{b}, Secret: secret, Clock: clock}
	})
}

// A testBus makes a fleet.Bus of a bus of the tests of package quota.
type testBus struct{ bus quota.MessageBus }

func (b testBus) Publish(m fleet.Message) { b.bus.Publish(quota.Message(m)) }
func (b testBus) Fetch(account string)    { b.bus.Fetch(account) }
func (b testBus) Subscribe(ctx context.Context, receive func(fleet.Message)) {
	b.bus.Subscribe(ctx, func(m quota.Message) { receive(fleet.Message(m)) })
}
