package rules

import (
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// A rateLimit is what a file says at the word rate_limit, before it is put together.
type rateLimit struct {
	node  *yaml.Node            // the whole of it
	nodes map[string]*yaml.Node // where each word is

	amount
	algorithm    string
	unlimited    bool
	name         string
	replaces     []string
	cost         int64
	granularity  time.Duration
	queue        int64
	concurrency  int64
	maxAge       time.Duration
	minGap       time.Duration
	countRefused bool
	delay        int64
	noDelay      bool
	warmUp       warmUpFields
	calendar     throttle.Alignment
	align        throttle.Alignment
	zone         *time.Location
	soft         int64 // percent
	borrow       string
	ban          *keyed.BanConfig
	active       []activeItem
	maxKeys      int64
	compact      bool
}

// An amount is the numbers of a limit.
type amount struct {
	count int64         // requests_per_unit
	unit  time.Duration // 0: not said
	per   time.Duration // 0: not said
	burst int64         // 0: not said
}

// length returns the time in which count units may come.
func (a amount) length() time.Duration {
	if a.per > 0 {
		return a.per
	}
	return a.unit
}

// A warmUpFields is what a file says at the word warm_up.
type warmUpFields struct {
	period, outage time.Duration
	coldFactor     float64
}

// An activeItem is an item of the word active.
type activeItem struct {
	node   *yaml.Node
	period Period
	amount
}

// has reports whether the draft has the word.
func (d *rateLimit) has(word string) bool { return d.nodes[word] != nil }

// nodeOf returns the node of the first of words that the draft has, or all of it.
func (d *rateLimit) nodeOf(words ...string) *yaml.Node {
	for _, w := range words {
		if n := d.nodes[w]; n != nil {
			return n
		}
	}
	return d.node
}

// rateLimit reads what is said at the word rate_limit.
func (r *reader) rateLimit(n *yaml.Node) *rateLimit {
	d := &rateLimit{node: n, nodes: map[string]*yaml.Node{}, cost: 1}
	known := r.amount(&d.amount)
	for word, read := range map[string]func(*yaml.Node){
		"algorithm":     r.algorithm(&d.algorithm),
		"unlimited":     r.boolean("unlimited", &d.unlimited),
		"name":          r.str("name", &d.name),
		"replaces":      r.replaces(d),
		"cost":          r.number("cost", 1, &d.cost),
		"granularity":   r.duration("granularity", &d.granularity),
		"queue":         r.number("queue", 1, &d.queue),
		"concurrency":   r.number("concurrency", 1, &d.concurrency),
		"max_age":       r.duration("max_age", &d.maxAge),
		"min_gap":       r.duration("min_gap", &d.minGap),
		"count_refused": r.boolean("count_refused", &d.countRefused),
		"delay":         r.number("delay", 1, &d.delay),
		"nodelay":       r.boolean("nodelay", &d.noDelay),
		"warm_up":       r.warmUp(&d.warmUp),
		"calendar":      r.oneOf("calendar", calendars, &d.calendar),
		"align":         r.oneOf("align", alignments, &d.align),
		"zone":          r.zone(&d.zone),
		"soft":          r.percent("soft", &d.soft),
		"borrow":        r.borrow(&d.borrow),
		"ban":           r.ban(&d.ban),
		"active":        r.activeItems(&d.active),
		"max_keys":      r.number("max_keys", 1, &d.maxKeys),
		"compact":       r.boolean("compact", &d.compact),
	} {
		known[word] = read
	}
	r.mapping(n, "rate_limit", recordNodes(known, d.nodes))
	return d
}

// recordNodes returns known with readers that note where each word is.
func recordNodes(known fieldReaders, at map[string]*yaml.Node) fieldReaders {
	for word, read := range known {
		known[word] = func(n *yaml.Node) {
			at[word] = n
			read(n)
		}
	}
	return known
}

// amount returns who reads the words of an amount into a.
func (r *reader) amount(a *amount) fieldReaders {
	return fieldReaders{
		"unit":              r.unit(&a.unit),
		"per":               r.duration("per", &a.per),
		"requests_per_unit": r.number("requests_per_unit", 0, &a.count),
		"burst":             r.number("burst", 1, &a.burst),
	}
}

var calendars = map[string]throttle.Alignment{
	"minute": throttle.EachMinute, "hour": throttle.EachHour, "day": throttle.EachDay, "month": throttle.EachMonth,
}

var alignments = map[string]throttle.Alignment{
	"epoch": throttle.AtEpoch, "first": throttle.AtFirst,
}

// oneOf returns who reads one of the words of a table into to.
func (r *reader) oneOf(what string, table map[string]throttle.Alignment, to *throttle.Alignment) func(*yaml.Node) {
	return func(n *yaml.Node) {
		text, ok := r.scalar(n, what)
		if !ok {
			return
		}
		if *to, ok = table[text]; !ok {
			r.fail(n, "%s is %q: write %s", what, truncate(text), oneOfKeys(table))
		}
	}
}

// algorithm returns who reads the name of an algorithm into to.
func (r *reader) algorithm(to *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		text, ok := r.scalar(n, "algorithm")
		switch {
		case !ok:
		case text == "tick_queue":
			r.fail(n, "algorithm tick_queue grants nothing immediately, so a request that cannot book ahead is never granted: write leaky_bucket")
		case algorithms[text] == nil:
			r.fail(n, "algorithm is %q: write %s", truncate(text), oneOfKeys(algorithms))
		default:
			*to = text
		}
	}
}

// replaces returns who reads the names of other limits.
func (r *reader) replaces(d *rateLimit) func(*yaml.Node) {
	return func(n *yaml.Node) {
		r.list(n, "replaces", func(n *yaml.Node) {
			var name string
			r.mapping(n, "replaces", fieldReaders{"name": r.str("name", &name)})
			if name == "" {
				r.fail(n, "replaces has an item without a name: write \"- name: \" and the name of the other limit")
				return
			}
			d.replaces = append(d.replaces, name)
		})
	}
}

// percent returns who reads 10% or 10 into to.
func (r *reader) percent(what string, to *int64) func(*yaml.Node) {
	return func(n *yaml.Node) {
		text, ok := r.scalar(n, what)
		if !ok {
			return
		}
		v, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(text, "%")), 10, 32)
		if err != nil || v <= 0 {
			r.fail(n, "%s is %q: write how many percent more may come, such as 10%%", what, truncate(text))
			return
		}
		*to = v
	}
}

// borrow returns who reads the name of a Config.CanBorrow into to.
func (r *reader) borrow(to *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		text, ok := r.scalar(n, "borrow")
		if ok && r.config.CanBorrow[text] == nil {
			r.fail(n, "borrow is %q: the program has no Config.CanBorrow of that name", truncate(text))
		}
		*to = text
	}
}

// warmUp returns who reads what is said at the word warm_up.
func (r *reader) warmUp(to *warmUpFields) func(*yaml.Node) {
	return func(n *yaml.Node) {
		r.mapping(n, "warm_up", fieldReaders{
			"period":      r.duration("period", &to.period),
			"cold_factor": r.float("cold_factor", &to.coldFactor),
			"outage":      r.duration("outage", &to.outage),
		})
	}
}

// float returns who reads a positive number into to.
func (r *reader) float(what string, to *float64) func(*yaml.Node) {
	return func(n *yaml.Node) {
		text, ok := r.scalar(n, what)
		if !ok {
			return
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v > 0 && v < 1e6) {
			r.fail(n, "%s is %q: write a number above 0, such as 3", what, truncate(text))
			return
		}
		*to = v
	}
}

// ban returns who reads what is said at the word ban.
func (r *reader) ban(to **keyed.BanConfig) func(*yaml.Node) {
	return func(n *yaml.Node) {
		var s keyed.BanConfig
		var after, keys int64
		r.mapping(n, "ban", fieldReaders{
			"name":         r.str("name", &s.Name),
			"refusals":     r.number("refusals", 1, &after),
			"within":       r.duration("within", &s.Within),
			"duration":     r.duration("duration", &s.Duration),
			"max_duration": r.duration("max_duration", &s.MaxDuration),
			"forget_after": r.duration("forget_after", &s.ForgetAfter),
			"max_keys":     r.number("max_keys", 1, &keys),
		})
		s.Refusals, s.MaxKeys = clampInt(after), clampInt(keys)
		if err := s.Validate(); err != nil {
			r.fail(n, "%s", withoutPackage(err))
			return
		}
		*to = &s
	}
}

// activeItems returns who reads what is said at the word active: one item, or several.
func (r *reader) activeItems(to *[]activeItem) func(*yaml.Node) {
	return func(n *yaml.Node) {
		r.listOrOne(n, func(n *yaml.Node) {
			a := activeItem{node: n, period: Period{To: day, Days: EveryDay}, amount: amount{count: -1}}
			known := r.amount(&a.amount)
			known["from"] = r.clockTime("from", &a.period.From)
			known["to"] = r.clockTime("to", &a.period.To)
			known["days"] = r.days(&a.period.Days)
			known["zone"] = r.zone(&a.period.Zone)
			r.mapping(n, "active", known)
			*to = append(*to, a)
		})
	}
}

func clampInt(n int64) int { return int(min(n, 1<<31-1)) }
