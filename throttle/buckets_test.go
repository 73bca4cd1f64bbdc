package throttle

// newLeaky returns the bucket of NewLeakyBucket with its methods for package rate.
func newLeaky(c LeakyBucketConfig) *leakyBucket { return NewLeakyBucket(c).(*leakyBucket) }

// newToken returns the bucket of NewTokenBucket with its methods for package rate.
func newToken(l Limit) *tokenBucket { return NewTokenBucket(l).(*tokenBucket) }
