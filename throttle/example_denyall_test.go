package throttle_test

import (
	"context"
	"fmt"

	"github.com/heed-go/heed/throttle"
)

// AllowAll and DenyAll are the limits of keys that need no limit, or that may not send.
func ExampleDenyAll() {
	limits := map[string]throttle.Limiter{
		"admin":   throttle.AllowAll,
		"blocked": throttle.DenyAll,
	}
	for _, key := range []string{"admin", "blocked"} {
		d, _ := limits[key].Reserve(context.Background(), throttle.Claim{Key: key})
		fmt.Println(key, d.OK, d.Wait == throttle.Forever)
	}
	// Output:
	// admin true false
	// blocked false true
}
