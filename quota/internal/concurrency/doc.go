// Package concurrency bounds the requests in flight of one quota: a [Ramp] sends what has waited at a growing
// rate, and an [AdaptiveLimiter] sends fewer while that makes failures rarer.
package concurrency
