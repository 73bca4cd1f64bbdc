// Package rules reads limits from a file and finds those that a request must pass.
//
//	domain: api
//	values:                                   # where the keys of descriptors come from
//	  user: {header: X-User}
//	descriptors:                              # as envoyproxy/ratelimit has them
//	  - key: remote_address
//	    rate_limit: {unit: second, requests_per_unit: 10}
//	  - key: user
//	    rate_limit: {unit: minute, requests_per_unit: 100, burst: 20, soft: 10%}
//	limits:                                   # ours: by host, method, path and headers
//	  - name: search
//	    match: GET api.example.com/search/{id}
//	    key: user
//	    rate_limit: {unit: second, requests_per_unit: 5, algorithm: leaky_bucket, queue: 10}
//
// [Parse] and [Load] return a [Set]. Its method Limits fits the Transport and the
// server's middleware, so that one file drives both; Add is for programs that know keys
// and values themselves. A [File] is a Set that follows the file while it changes.
//
// # Descriptors
//
// The words and what they mean are those of envoyproxy/ratelimit: domain, descriptors,
// key, value with "*" for any text, rate_limit with unit, requests_per_unit, unlimited,
// name and replaces, shadow_mode, detailed_metric, value_to_metric, share_threshold.
// What it knows and we do not, quota_mode and metadata, is refused by name. Two things
// differ. Keys are counted in this process, or where [Config].Build says. And there is
// no proxy that makes descriptors of requests: a request has all descriptors for whose
// keys it has values, all the way down to a limit. The keys remote_address, method,
// path and host are known; others come from values, or from Config.Values. Requests that
// have a cookie twice with different values share one value of it, and so do requests with
// more than 64 KiB of cookies, or of query.
//
// # Limits
//
// An item of limits matches by host, method, path and headers, in the form of net/http's
// patterns or in parts. All that match hold, and replaces makes exceptions. Its key says
// which values have the limit for themselves; braces name a segment of the path. Who has
// no such value shares a limit with all others who have none, unless unidentified is
// skip.
//
// # What a rate_limit may say
//
//	requests_per_unit     how many; 0: none
//	unit, per             second, minute, hour, day, week, month, year; or any time, such as 90s
//	algorithm             how they are counted; fixed_window, unless a word below implies another
//	burst                 at once: token_bucket, also refill, leaky_bucket and nginx
//	granularity           length of a sub-window: sub_windows
//	queue                 how many may wait: leaky_bucket
//	calendar, zone        windows of the calendar: minute, hour, day or month
//	align                 where windows begin: epoch, or at the first request
//	warm_up               period, cold_factor, outage: slow at first
//	concurrency, max_age  how many at a time, and when one is taken for lost
//	min_gap               least time between two: sliding_log; also count_refused
//	delay, nodelay        as in nginx's limit_req
//	cost                  units that a request takes
//	soft                  percent that may come on top, marked
//	borrow                which Config.CanBorrow lends beyond the limit
//	ban                   refusals, within, duration, max_duration, forget_after: for keys that ignore refusals
//	active                from, to, days, zone: another amount at these times
//	max_keys              keys at a time; what is beyond shares a few limiters
//	compact               16 bytes for each key of a token_bucket instead of 500; when the
//	                      limit changes, all of them begin anew
//
// Further algorithms are sliding_counter and permits_per_period.
//
// # Besides files
//
// Package rules/source looks the limit of each key up in a database or an API; [Config].Build
// can use it for a limit of a file. Package rules/monitor counts what each limit of a file
// decides, recommends changes, and reports keys that are refused or fail too often.
package rules
