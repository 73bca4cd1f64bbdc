package rules_test

import (
	"fmt"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// Limits that several processes share are kept in a store. Build returns a limiter for each
// algorithm that the store supports; all other limits are kept in this process.
func ExampleConfig_build() {
	shared := func(l throttle.Limit) throttle.Limiter { // in place of a store such as Redis
		fmt.Println("shared:", l.Name, l)
		return keyed.NewBuckets(keyed.BucketsConfig{Limit: l})
	}
	_, err := rules.Parse([]byte(`
domain: api
descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 10, algorithm: token_bucket}
  - key: method
    rate_limit: {concurrency: 100}
`), rules.Config{Build: func(l *rules.Limit) (throttle.Limiter, error) {
		if spec, ok := l.Spec.(throttle.Limit); ok {
			return shared(spec), nil
		}
		return nil, nil
	}})
	fmt.Println(err)
	// Output:
	// shared: api/remote_address 10 per 1s
	// <nil>
}
