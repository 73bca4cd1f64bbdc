// Package adaptive limits requests to servers that reject without stating their limits. A
// [Limiter] finds the rate that a server accepts; [NewAdmissionControl] rejects claims at random
// while a server rejects many. Both learn from outcomes, so their claims must be observed.
// A heed.Transport and a queue.Queue do that.
//
//	limiter := adaptive.New(adaptive.Config{})
//	client := heed.NewClient(&heed.Transport{Limiter: limiter})
//
// For servers that state their limits, see package quota.
package adaptive
