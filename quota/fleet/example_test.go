package fleet_test

import (
	"context"
	"fmt"
	"time"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/quota/fleet"
)

// A broadcast is a Bus over a publish/subscribe system that does not keep messages.
type broadcast struct {
	send   func(fleet.Message)
	listen func(ctx context.Context, receive func(fleet.Message))
}

func (b broadcast) Publish(m fleet.Message) { b.send(m) }

func (b broadcast) Subscribe(ctx context.Context, receive func(fleet.Message)) {
	b.listen(ctx, receive)
}

// Fetch does nothing, because nothing is kept: the first requests of an account wait for 100 ms.
func (b broadcast) Fetch(string) {}

// A Bus needs three methods. Here the system prints messages instead of sending them.
func ExampleBus() {
	bus := broadcast{
		send:   func(m fleet.Message) { fmt.Println("about", m.Account, "kept for", m.Keep) },
		listen: func(context.Context, func(fleet.Message)) {},
	}
	exchange := &fleet.Exchange{Bus: bus, Secret: []byte("the same in all processes")}
	tracker := &quota.Tracker{Exchange: exchange}
	defer tracker.Close()

	exchange.Publish(quota.Update{Kind: quota.UpdateHold, Account: "hash", Wait: time.Minute}) // as the Tracker does
	// Output: about hash kept for 1m0s
}
