// Package rules reads rate limits from a YAML file and finds the limits that apply to a request.
//
//	domain: api
//	values:                                   # the sources of the values of keys
//	  user: {header: X-User}
//	descriptors:                              # in the format of envoyproxy/ratelimit
//	  - key: remote_address
//	    rate_limit: {unit: second, requests_per_unit: 10}
//	  - key: user
//	    rate_limit: {unit: minute, requests_per_unit: 100, burst: 20, soft: 10%}
//	limits:                                   # an extension: by host, method, path and headers
//	  - name: search
//	    match: GET api.example.com/search/{id}
//	    key: user
//	    rate_limit: {unit: second, requests_per_unit: 5, algorithm: leaky_bucket, queue: 10}
//
// [Parse] and [Load] return a [Set]. Set.Limits has the signature of heed.Transport.Limits and of
// throttlehttp.Middleware.Limits, so that clients and servers can use the same file. Set.Add is
// for programs that supply keys and values themselves. A [File] reads its file again whenever the
// file changes.
//
// # Descriptors
//
// The following words have the meaning that envoyproxy/ratelimit gives them: domain, descriptors,
// key, value with "*" for any text, rate_limit with unit, requests_per_unit, unlimited, name and
// replaces, shadow_mode, detailed_metric, value_to_metric, share_threshold. Parse rejects
// quota_mode and metadata, which are not supported. There are two differences:
//
//   - Counters are kept in this process, unless [Config].Build returns another limiter.
//   - No proxy builds descriptors from requests. A descriptor applies to a request if the request
//     has a value for each of its keys, from the root of the tree to the limit.
//
// # Values
//
// The keys remote_address, method, path and host are built in; the values of other keys come from
// the section values or from Config.Values. An entry of values has one of these words:
//
//	user: {header: X-User}             a header; several lines of it are joined with commas
//	session: {cookie: sid}             a cookie
//	plan: {query: plan}                the first parameter of the query with that name
//	all: {fixed: everyone}             the same text for all requests
//	client: {request: remote_address}  a built-in key by another name
//
// remote_address is the address of the connection (http.Request.RemoteAddr), and the first 64 bits of
// an IPv6 address. Behind a proxy it is that of the proxy, for all clients: supply another one by
// Config.Values. path is decoded and without dot segments and doubled slashes. In keys, all methods
// that are not registered are one, because clients can invent them; they can also invent hosts and
// paths.
//
// The keys of limits appear in a store, in reports of package rules/monitor, and in the errors of a
// client. So values of headers that are known to carry secrets, such as Authorization and X-API-Key,
// are hashed in them (SHA-256); all others are used unchanged. Other values that are secrets, such as
// session cookies, should come from Config.Values with a function that hashes them, such as a method of
// throttlehttp.Secrets.
//
// All requests that carry the same cookie more than once with different values share one value of
// that cookie, and so do all requests with more than 64 KiB of cookies or of query.
//
// # Limits
//
// An item of limits applies to the requests that match:
//
//	name          the name of the limit, which no other limit has
//	match         a pattern of net/http, such as GET api.example.com/files/{id}; or host, method,
//	              path and header, such as {method: [GET, POST], header: {X-Plan: "free*"}},
//	              all of which must match. Without match all requests match. POST matches post,
//	              too, but /login not /LOGIN: rewrite paths before if their case is ignored
//	key           the names of values, one or a list; each combination of values has a limit of
//	              its own. A name in braces refers to a segment of the path
//	unidentified  requests that have not all values of key: share (one limit for all of them, the
//	              default) or skip (the limit does not apply)
//	shadow_mode   true: the limit counts and rejects nothing, and a throttlehttp.Middleware does
//	              not state it to clients
//	rate_limit    the amount
//
// All items that match a request apply to it; replaces makes exceptions.
//
// # Words of a rate_limit
//
//	requests_per_unit     number of units; 0 rejects all requests
//	unit, per             second, minute, hour, day, week, month, year; or any duration, such as 90s
//	algorithm             the algorithm; the default is fixed_window, or what another word implies
//	burst                 units granted immediately: token_bucket, also refill, leaky_bucket and nginx
//	granularity           length of a sub-window: sub_windows
//	queue                 maximum number of waiting units: leaky_bucket
//	calendar, zone        calendar windows: minute, hour, day or month
//	align                 start of the windows: epoch, or first for the first request
//	warm_up               period, cold_factor, outage: a lower rate at first
//	concurrency, max_age  maximum number at the same time, and the age at which one counts as lost
//	min_gap               minimum time between two requests: sliding_log; also count_rejected
//	delay, nodelay        as in limit_req of nginx
//	cost                  units that a request takes
//	soft                  percentage granted beyond the limit, marked as over the limit
//	borrow                name of the Config.CanBorrow that may grant beyond the limit
//	ban                   rejections, within, duration, max_duration, forget_after: for keys that keep exceeding the limit
//	active                from, to, days, zone: another amount at these times
//	max_keys              maximum number of keys with a limiter of their own: see Limit.MaxKeys
//	compact               35 bytes for each key of a token_bucket instead of 600; all keys start
//	                      with a full bucket when the limit changes
//
// Further algorithms are sliding_counter and permits_per_period.
//
// # Related packages
//
// Package rules/source looks up the limit of each key in a database or an API; use it from
// [Config].Build. Package rules/monitor counts the decisions of each limit of a file, recommends
// changes, and reports keys that are rejected or fail too often.
package rules
