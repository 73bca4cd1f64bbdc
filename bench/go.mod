module github.com/heed-go/heed/bench

go 1.26.0

require (
	github.com/PuerkitoBio/rehttp v1.4.0
	github.com/bits-and-blooms/bloom/v3 v3.7.1
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/hashicorp/go-retryablehttp v0.7.8
	github.com/heed-go/heed v0.0.0
	github.com/stretchr/testify v1.12.1
	github.com/tylertreat/BoomFilters v0.0.0-20251001182300-5b3723cc64ae
	golang.org/x/time v0.15.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
	github.com/klauspost/cpuid/v2 v2.2.10 // indirect
	github.com/sethvargo/go-limiter v0.7.1 // indirect
	github.com/zeebo/xxh3 v1.1.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)

replace github.com/heed-go/heed => ../
