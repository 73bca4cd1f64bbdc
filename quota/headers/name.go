package headers

import (
	"strconv"
	"strings"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// A nameInfo is what a header name states.
type nameInfo struct {
	kind        Kind
	isRateLimit bool          // the name mentions rate limits; otherwise the values decide
	weakSignal  bool          // the name does not mention rate limits, but is used only for limits
	vague       bool          // the name is one of a quota that may count something else than requests
	unit        string        // what is counted; "": requests
	window      time.Duration // the window in the name; 0: none
	scale       time.Duration // unit of time of a bare number; 0: not stated

	spelling        uint8  // with or without X-, as one word or two
	qualifierHash   uint64 // hash of the words that name the bucket; 0: there are none
	singleQualifier string // the name of the bucket if it is one word of the dictionary
}

const (
	spellingX = 1 << iota
	spellingTwoWords
)

// A nameClass is what is known about a header name without parsing it.
type nameClass uint8

const (
	nameUnknown    nameClass = iota // it must be parsed
	nameIgnored                     // not about limits
	nameAge                         // Age
	nameCache                       // of a cache, see isCacheHit
	nameSuggested                   // X-Amz-Retry-After
	nameRetryAfter                  // Retry-After
	nameOfRule                      // of a Unique rule of the table

	// The others are described by knownNames: delays, and names that begin with RateLimit.
	nameDelay
	nameDelayMillis
	nameDelayOfLimit
	nameComposite
	nameLimit
	nameRemaining
	nameReset
	nameResetAfter
	nameUsed
	nameBucket
	namePolicy
	nameLimitRequests
	nameRemainingRequests
	nameResetRequests
	nameLimitTokens
	nameRemainingTokens
	nameResetTokens
)

// knownNames describes the usual names of rate-limit headers.
var knownNames = [...]nameInfo{
	nameDelay:             {kind: KindRetryAfter},
	nameDelayMillis:       {kind: KindRetryAfter, scale: time.Millisecond},
	nameDelayOfLimit:      {kind: KindRetryAfter, isRateLimit: true},
	nameComposite:         {isRateLimit: true},
	nameLimit:             {kind: KindLimit, isRateLimit: true},
	nameRemaining:         {kind: KindRemaining, isRateLimit: true},
	nameReset:             {kind: KindReset, isRateLimit: true},
	nameResetAfter:        {kind: KindResetAfter, isRateLimit: true},
	nameUsed:              {kind: KindUsed, isRateLimit: true},
	nameBucket:            {kind: KindName, isRateLimit: true},
	namePolicy:            {kind: KindPolicy, isRateLimit: true},
	nameLimitRequests:     {kind: KindLimit, isRateLimit: true, qualifierHash: hashRequests, singleQualifier: "requests"},
	nameRemainingRequests: {kind: KindRemaining, isRateLimit: true, qualifierHash: hashRequests, singleQualifier: "requests"},
	nameResetRequests:     {kind: KindReset, isRateLimit: true, qualifierHash: hashRequests, singleQualifier: "requests"},
	nameLimitTokens:       {kind: KindLimit, isRateLimit: true, qualifierHash: hashTokens, singleQualifier: "tokens", unit: "tokens"},
	nameRemainingTokens:   {kind: KindRemaining, isRateLimit: true, qualifierHash: hashTokens, singleQualifier: "tokens", unit: "tokens"},
	nameResetTokens:       {kind: KindReset, isRateLimit: true, qualifierHash: hashTokens, singleQualifier: "tokens", unit: "tokens"},
}

// Results of hashWord for the words requests and tokens.
const (
	hashRequests = 0xd88bf151bef69c3a
	hashTokens   = 0xe4337e08d34c7a5a
)

// classify returns what is known about a name in canonical form, and how it spells RateLimit.
// The names of the last case are those of the Unique rules of the table; tests compare them, and
// knownNames with the grammar.
func classify(name string) (nameClass, uint8) {
	if strings.HasPrefix(name, "X-Rate") || strings.HasPrefix(name, "Rate") {
		if class, spelling := classifyRateLimit(name); class != nameUnknown {
			return class, spelling
		}
	}
	switch name {
	case "Retry-After":
		return nameRetryAfter, 0
	case "X-Retry-After", "X-Retry-In":
		return nameDelay, 0
	case "Retry-After-Ms", "X-Ms-Retry-After-Ms":
		return nameDelayMillis, 0
	case "Age":
		return nameAge, 0
	case "Cache-Status", "Cf-Cache-Status", "X-Cache", "X-Cache-Hits", "X-Cache-Status", "X-Proxy-Cache", "X-Varnish", "X-Vercel-Cache":
		return nameCache, 0
	case "X-Amz-Retry-After":
		return nameSuggested, 0
	case "Accept-Ranges", "Access-Control-Allow-Credentials", "Access-Control-Allow-Headers", "Access-Control-Allow-Methods",
		"Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Alt-Svc", "Cache-Control", "Cf-Ray",
		"Connection", "Content-Encoding", "Content-Language", "Content-Length", "Content-Security-Policy", "Content-Type", "Date", "Etag", "Expires",
		"Keep-Alive", "Last-Modified", "Link", "Location", "Permissions-Policy", "Referrer-Policy", "Server", "Server-Timing", "Set-Cookie", "Status",
		"Strict-Transport-Security", "Transfer-Encoding", "Vary", "Via", "X-Content-Type-Options", "X-Frame-Options",
		"X-Github-Api-Version-Selected", "X-Github-Media-Type", "X-Github-Request-Id", "X-Accepted-Oauth-Scopes", "X-Oauth-Scopes",
		"X-Correlation-Id", "X-Powered-By", "X-Request-Id", "X-Runtime", "X-Xss-Protection":
		return nameIgnored, 0
	case "Auth0-Client-Quota-Limit", "Auth0-Organization-Quota-Limit", "Gw-Ratelimit-Limit", "Gw-Ratelimit-Remaining", "Gw-Ratelimit-Reset", "Http_x_shopify_shop_api_call_limit",
		"Mediawiki-Api-Error", "Req-Limit-Long", "Req-Limit-Short", "Twilio-Concurrent-Requests", "X-Ad-Account-Insights-Usage",
		"X-Ad-Account-Usage", "X-Amzn-Errortype", "X-Amzn-Ratelimit-Limit", "X-App-Usage", "X-Bapi-Limit", "X-Bapi-Limit-Reset-Timestamp",
		"X-Bapi-Limit-Status", "X-Business-Use-Case-Usage", "X-Codex-Primary-Reset-After-Seconds",
		"X-Codex-Primary-Used-Percent", "X-Codex-Primary-Window-Minutes", "X-Codex-Secondary-Reset-After-Seconds",
		"X-Codex-Secondary-Used-Percent", "X-Codex-Secondary-Window-Minutes", "X-Current-Token-Count", "X-Daily-Ratelimit-Token-Limit",
		"X-Daily-Ratelimit-Token-Remaining", "X-Envoy-Ratelimited", "X-Fb-Ads-Insights-Throttle", "X-Ls-Api-Bucket-Level",
		"X-Mashery-Error-Code", "X-Mbx-Used-Remain-Limit", "X-Ms-Ratelimit-Time-Remaining-Xrm-Requests",
		"X-Next-Replenishment-Time", "X-Page-Usage", "X-Rate-Limit-Requests-Left", "X-Rate-Limit-Requests-Quota",
		"X-Rate-Limit-Time-Reset-Ms", "X-Rate-Limit-Time-Window-Ms", "X-Ratelimit-Used-Currentrequest", "X-Rl",
		"X-Sentry-Rate-Limits", "X-Shopify-Shop-Api-Call-Limit":
		return nameOfRule, 0
	}
	return nameUnknown, 0
}

// classifyRateLimit returns what is known about a name that begins with RateLimit.
func classifyRateLimit(name string) (nameClass, uint8) {
	rest, spelling := name, uint8(0)
	if strings.HasPrefix(rest, "X-") {
		rest, spelling = rest[2:], spellingX
	}
	switch {
	case strings.HasPrefix(rest, "Ratelimit"):
		rest = rest[len("Ratelimit"):]
	case strings.HasPrefix(rest, "Rate-Limit"):
		rest, spelling = rest[len("Rate-Limit"):], spelling|spellingTwoWords
	default:
		return nameUnknown, 0
	}
	switch rest {
	case "":
		return nameComposite, spelling
	case "-Limit":
		return nameLimit, spelling
	case "-Remaining":
		return nameRemaining, spelling
	case "-Reset":
		return nameReset, spelling
	case "-Reset-After":
		return nameResetAfter, spelling
	case "-Used":
		return nameUsed, spelling
	case "-Resource", "-Bucket":
		return nameBucket, spelling
	case "-Policy":
		return namePolicy, spelling
	case "-Limit-Requests":
		return nameLimitRequests, spelling
	case "-Remaining-Requests":
		return nameRemainingRequests, spelling
	case "-Reset-Requests":
		return nameResetRequests, spelling
	case "-Limit-Tokens":
		return nameLimitTokens, spelling
	case "-Remaining-Tokens":
		return nameRemainingTokens, spelling
	case "-Reset-Tokens":
		return nameResetTokens, spelling
	case "-Retry-After":
		return nameDelayOfLimit, spelling
	}
	return nameUnknown, 0
}

// isFallbackTier reports whether name is that of a limit beyond which requests are processed in a lower
// tier of service instead of being rejected: the Priority and fast tiers of Anthropic.
func isFallbackTier(name string) bool {
	return strings.HasPrefix(name, "Anthropic-Priority-") || strings.HasPrefix(name, "Anthropic-Fast-")
}

// isCacheHit reports whether a header with the class nameCache states that a cache has sent the
// response without asking the server.
func isCacheHit(name string, values []string) bool {
	for _, v := range values[:min(len(values), maxInstances)] {
		switch name {
		case "X-Varnish": // the numbers of this request, and of the one that filled the cache
			if _, _, hit := strings.Cut(trimBlanks(v), " "); hit {
				return true
			}
			continue
		case "X-Cache-Hits": // a number for each cache
			if strings.ContainsAny(v, "123456789") {
				return true
			}
			continue
		}
		for v != "" {
			var item string
			if item, v, _ = strings.Cut(v, ","); isHitItem(item) {
				return true
			}
		}
	}
	return false
}

// isHitItem reports whether the statement of one cache is a hit: "HIT", "Hit from cloudfront",
// "TCP_MEM_HIT from a", or "ExampleCache; hit; ttl=30" (RFC 9211). Outdated responses are hits as well.
func isHitItem(item string) bool {
	first, params, _ := strings.Cut(trimBlanks(item), ";")
	for params != "" {
		var p string
		if p, params, _ = strings.Cut(params, ";"); trimBlanks(p) == "hit" || trimBlanks(p) == "hit=?1" {
			return true
		}
	}
	first, _, _ = strings.Cut(first, " ")
	return len(first) >= 3 && equalFold(first[len(first)-3:], "hit") ||
		equalFold(first, "stale") || equalFold(first, "updating") || equalFold(first, "revalidated")
}

// mayStateLimit reports whether a header name may be about limits. It is much faster than
// parseName, and never returns false for a name that parseName accepts or takes for a limit.
func mayStateLimit(name string) bool {
	table, found := letterPairs(), uint8(0)
	for i := 1; i < len(name); i++ {
		found |= table[name[i-1]&0x5f][name[i]&31]
	}
	return found&pairOfLimit != 0 || found&(pairOfField|pairOfDetail) == pairOfField|pairOfDetail
}

// maxNameLen is the maximum number of bytes of a name that are used, for headers and
// limits. Longer names are truncated; in the name of a header each word is truncated,
// because the last words determine the meaning of the value.
const maxNameLen = 96

// A nameWord is one word of a name.
type nameWord struct {
	dictWord
	lo, hi   uint8 // start and end in buf
	consumed bool  // the word has a role and is not part of the name of the bucket
}

// A nameParser splits a name into words and interprets them.
type nameParser struct {
	buf        [maxNameLen]byte // the name in lower case
	words      [16]nameWord
	n          int
	keywordEnd int // index of the first word after the keyword; 0: no keyword
	kindIndex  int // index of the field word; -1: none
}

// parseName parses a header name: the rightmost field word determines the kind of the
// value, units and windows describe the limit, and the remaining words name the bucket.
func parseName(name string) (m nameInfo, ok bool) {
	var r nameParser
	r.parse(name, &m)
	return m, m.isRateLimit || m.weakSignal || m.kind == KindRetryAfter
}

func (r *nameParser) parse(name string, m *nameInfo) {
	r.split(name)
	r.findKeyword(m)
	r.kindIndex = -1
	r.findTwoWordKinds()
	r.findKind()
	if r.kindIndex >= 0 {
		m.kind = r.words[r.kindIndex].kind
		r.readTime(m)
	}
	r.readQualifiers(m)
}

// split splits the name at hyphens, and splits words without separators.
func (r *nameParser) split(name string) {
	s := toLower(r.buf[:], name)
	if len(name) > maxNameLen {
		s = truncateWords(r.buf[:], name)
	}
	start := 0
	for i := 0; i <= len(s); i++ {
		if i == len(s) || s[i] == '-' || s[i] == '_' || s[i] == '.' {
			if i > start {
				r.addWord(start, i, 3)
			}
			start = i + 1
		}
	}
}

// truncateWords copies the first bytes of each word of a long name into buf, in lower case,
// and drops what does not fit.
func truncateWords(buf []byte, name string) []byte {
	const most = 16 // longer than any word of the dictionary
	n, word := 0, 0
	for i := 0; i < len(name) && n < len(buf); i++ {
		if word++; name[i] == '-' || name[i] == '_' || name[i] == '.' {
			word = 0
		}
		if word <= most {
			toLower(buf[n:n+1], name[i:i+1])
			n++
		}
	}
	return buf[:n]
}

// addWord adds the word between lo and hi, or the words that it is composed of. It splits
// up to depth times.
func (r *nameParser) addWord(lo, hi, depth int) {
	s := r.buf[lo:hi]
	w, known := dictionary[string(s)]
	if !known && depth > 0 {
		if cut := splitPoint(s); cut > 0 {
			r.addWord(lo, lo+cut, depth-1)
			r.addWord(lo+cut, hi, depth-1)
			return
		}
	}
	if !known {
		w = parseWindowWord(s)
	}
	if r.n < len(r.words) {
		r.words[r.n] = nameWord{dictWord: w, lo: uint8(lo), hi: uint8(hi)}
		r.n++
	}
}

// splitPoint returns the index at which to split s, or 0 if it is one word: before a field
// word that ends s, after a keyword that begins s, or between a scope and a window.
func splitPoint(s []byte) int {
	const keyword = "ratelimit"
	if len(s) > len(keyword) && string(s[:len(keyword)]) == keyword {
		return len(keyword)
	}
	for _, suffix := range suffixes {
		if cut := len(s) - len(suffix); cut > 1 && string(s[cut:]) == suffix {
			return cut
		}
	}
	if len(s) > 3 && (string(s[:3]) == "app" || string(s[:3]) == "api") {
		return 3
	}
	return 0
}

// parseWindowWord parses windows such as 1m, 10s and 15min. For other words it returns the
// zero dictWord, which is a qualifier.
func parseWindowWord(s []byte) dictWord {
	digits := 0
	for digits < len(s) && digits < 4 && isDigit(s[digits]) {
		digits++
	}
	if digits == 0 || digits == len(s) {
		return dictWord{}
	}
	if unit := unitOfTime(string(s[digits:])); unit >= time.Second {
		return dictWord{class: classWindow, duration: time.Duration(ticks.Mul(int64(unit), int64(smallInt(s[:digits]))))}
	}
	return dictWord{}
}

// findKeyword finds the keyword of rate limits, which is one word or two.
func (r *nameParser) findKeyword(m *nameInfo) {
	if r.n > 0 && r.is(0, "x") {
		m.spelling |= spellingX
	}
	for i := range r.words[:r.n] {
		p := &r.words[i]
		if p.class == classKeyword {
			p.consumed, r.keywordEnd, m.isRateLimit = true, i+1, true
			return
		}
		if r.is(i, "rate") && i+1 < r.n && r.words[i+1].kind == KindLimit {
			p.consumed, r.keywordEnd, m.isRateLimit = true, i+2, true
			r.words[i+1].consumed, r.words[i+1].class = true, classKeyword
			m.spelling |= spellingTwoWords
			return
		}
	}
}

// findTwoWordKinds finds fields that consist of two words, such as retry after and fill
// rate.
func (r *nameParser) findTwoWordKinds() {
	for i := 0; i+1 < r.n; i++ {
		p, next := &r.words[i], &r.words[i+1]
		switch {
		case r.is(i, "retry") && (next.class == classRelative || next.class == classAbsolute):
			p.class, p.kind = classKind, KindRetryAfter // not a Retry-Count
		case r.is(i, "burst") && next.class == classWeakKind && next.kind == KindLimit:
			p.consumed = true // Burst-Capacity: the size of the bucket
		case r.is(i, "per") && next.class != classWindow:
			p.class = classQualifier // per-ticket
		case r.is(i+1, "rate") && (r.is(i, "fill") || r.is(i, "refill") || r.is(i, "replenish") || r.is(i, "restore")):
			p.consumed = true
			next.class, next.kind = classKind, KindRate
		}
	}
}

// findKind finds the rightmost strong field word, or else the rightmost weak one. A retry
// field has precedence over all others.
func (r *nameParser) findKind() {
	for i := range r.words[:r.n] {
		p := &r.words[i]
		switch {
		case p.consumed || p.class != classKind && p.class != classWeakKind:
		case r.kindIndex < 0, r.words[r.kindIndex].kind != KindRetryAfter && (p.class == classKind || r.words[r.kindIndex].class == classWeakKind):
			r.kindIndex = i
		}
	}
	if r.kindIndex >= 0 {
		r.words[r.kindIndex].consumed = true
	}
}

// readTime reads the words after a field that is a time: the unit of a bare number, and
// whether it is a delay. A remaining value with a unit of time is the time until the reset.
func (r *nameParser) readTime(m *nameInfo) {
	if i := r.kindIndex + 1; m.kind == KindRemaining && i < r.n && r.words[i].class == classScale {
		m.kind = KindResetAfter
	}
	if !m.kind.isTime() {
		return
	}
	for i := range r.words[:r.n] {
		p := &r.words[i]
		near := i > r.kindIndex && r.words[i-1].consumed
		switch {
		case p.class == classScale && (near || i > r.kindIndex && r.is(i, "ms")):
			m.scale, p.consumed = p.duration, true
			if m.kind == KindReset {
				m.kind = KindResetAfter
			}
		case p.class == classRelative && near:
			p.consumed = true
			if m.kind == KindReset {
				m.kind = KindResetAfter
			}
		case p.class == classAbsolute && near, r.is(i, "time"):
			p.consumed = true
		}
	}
}

func (r *nameParser) is(i int, s string) bool { return r.text(i) == s }

// text returns word i. The compiler avoids the copy if the result is only compared.
func (r *nameParser) text(i int) string {
	p := &r.words[i]
	return string(r.buf[p.lo:p.hi])
}

// readQualifiers reads the remaining words: unit, window, and name of the bucket.
func (r *nameParser) readQualifiers(m *nameInfo) {
	numQualifiers, at, precise := 0, 0, m.isRateLimit
	for i := range r.words[:r.n] {
		p := &r.words[i]
		switch p.class {
		case classUnit:
			m.unit = r.unitAt(i)
			precise = precise || p.unit == ""
			m.weakSignal = m.weakSignal || p.onlyLimits && m.kind != KindNone
		case classWindow:
			m.window, m.unit = r.windowAt(i), max(m.unit, r.words[i].unit)
			precise = true
			m.weakSignal = m.weakSignal || m.kind != KindNone && !m.kind.isTime()
		case classScale:
			if !p.consumed && p.duration == time.Second && i > r.keywordEnd && r.isQualifier(i-1) {
				// seconds are a unit only together with the word before
				m.unit = r.text(i-1) + "_" + r.text(i)
			}
		}
		if !p.consumed && (p.kind == KindLimit || p.kind == KindUsed) {
			m.weakSignal = m.weakSignal || m.kind != KindNone && m.kind != KindName // Limit-Remaining, Quota-Reset
		}
		m.vague = m.vague || p.isPlan
		if r.isQualifier(i) {
			m.qualifierHash = r.addHash(m.qualifierHash, i)
			numQualifiers, at = numQualifiers+1, i
		}
	}
	m.vague = m.vague && !precise
	if numQualifiers == 1 {
		p := &r.words[at]
		m.singleQualifier = commonName(r.buf[p.lo:p.hi])
	}
}

// addHash adds word i to the hash of a bucket. Different words for one window have the same
// hash: what remains today belongs to the limit per day.
func (r *nameParser) addHash(h uint64, i int) uint64 {
	p := &r.words[i]
	if p.class == classWindow && p.duration > 0 {
		var buf [20]byte
		return hashWord(h, strconv.AppendInt(buf[:0], int64(p.duration), 10))
	}
	return hashWord(h, r.buf[p.lo:p.hi])
}

// isQualifier reports whether word i is part of the name of the bucket.
func (r *nameParser) isQualifier(i int) bool {
	p := &r.words[i]
	return !p.consumed && p.class != classFiller && p.class != classRelative && p.class != classAbsolute &&
		(p.class != classKind || r.is(i, "quota"))
}

// unitAt returns the unit that word i states. Input and output are separate units, because
// they have separate limits.
func (r *nameParser) unitAt(i int) string {
	u := r.words[i].unit
	for _, j := range [...]int{i - 1, i + 1} {
		switch {
		case j < 0 || j >= r.n:
		case u == "" && j < i && r.words[j].unit == unitConcurrent:
			return unitConcurrent
		case u == "tokens" && (r.is(j, "input") || r.is(j, "prompt")):
			return "input_tokens"
		case u == "tokens" && (r.is(j, "output") || r.is(j, "completion") || r.is(j, "generated")):
			return "output_tokens"
		}
	}
	return u
}

// windowAt returns the window that word i states, multiplied by a preceding number as in
// 10-second.
func (r *nameParser) windowAt(i int) time.Duration {
	window := r.words[i].duration
	if i > 0 {
		if p := &r.words[i-1]; p.hi-p.lo <= 4 {
			if n := smallInt(r.buf[p.lo:p.hi]); n > 0 {
				window = time.Duration(ticks.Mul(int64(window), int64(n)))
			}
		}
	}
	return window
}

// qualifierName returns the words of a header name that name the bucket: those after the
// keyword if there are any, otherwise those before it.
func qualifierName(name string) string {
	var r nameParser
	var m nameInfo
	r.parse(name, &m)
	for from := r.keywordEnd; ; from = 0 {
		var out []byte
		for i := from; i < r.n; i++ {
			if r.isQualifier(i) {
				if len(out) > 0 {
					out = append(out, '-')
				}
				out = append(out, r.buf[r.words[i].lo:r.words[i].hi]...)
			}
		}
		if len(out) > 0 || from == 0 {
			return string(out)
		}
	}
}

// commonName returns the usual names of buckets without an allocation, and "" for others.
func commonName(b []byte) string {
	switch string(b) {
	case "requests":
		return "requests"
	case "tokens":
		return "tokens"
	case "second":
		return "second"
	case "minute":
		return "minute"
	case "hour":
		return "hour"
	case "day":
		return "day"
	}
	return ""
}
