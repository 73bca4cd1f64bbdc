// Package source limits each key by a limit that is looked up in a database or an API.
//
//	limiter := &source.Source{
//		Lookup: func(ctx context.Context, key string) (throttle.Limit, error) {
//			return db.LimitOfAccount(ctx, key) // or source.ErrNoLimit
//		},
//		Default: throttle.PerMinute(10), // for keys without a limit
//	}
//	d, err := limiter.Reserve(ctx, throttle.Claim{Key: account})
package source
