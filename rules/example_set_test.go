package rules_test

import (
	"context"
	"fmt"
	"time"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle/queue"
)

// Programs that supply keys and values themselves use descriptors.
func ExampleSet_Add() {
	set, err := rules.Load("testdata/envoy/example2.yaml", rules.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for range 6 {
		var t queue.Ticket
		set.Add(&t,
			rules.Descriptor{{Key: "message_type", Value: "marketing"}, {Key: "to_number", Value: "2061111111"}},
			rules.Descriptor{{Key: "to_number", Value: "2061111111"}})
		d, err := t.Reserve(context.Background(), now)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%v %q\n", d.OK, d.Policy)
	}
	// Output:
	// true ""
	// true ""
	// true ""
	// true ""
	// true ""
	// false "messaging/message_type=marketing/to_number"
}
