package rules

import (
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// A rateLimit holds the words of a rate_limit mapping, before newLimit validates them together.
type rateLimit struct {
	node  *yaml.Node            // the whole mapping
	nodes map[string]*yaml.Node // the node of each word

	amount
	algorithm     string
	unlimited     bool
	name          string
	replaces      []string
	cost          int64
	granularity   time.Duration
	queue         int64
	concurrency   int64
	maxAge        time.Duration
	minGap        time.Duration
	countRejected bool
	delay         int64
	noDelay       bool
	warmUp        warmUpFields
	calendar      throttle.Alignment
	align         throttle.Alignment
	zone          *time.Location
	soft          int64 // percent
	borrow        string
	ban           *keyed.BanConfig
	active        []activeItem
	maxKeys       int64
	compact       bool
}

// An amount holds the numbers of a limit.
type amount struct {
	count int64         // requests_per_unit
	unit  time.Duration // 0 means not set
	per   time.Duration // 0 means not set
	burst int64         // 0 means not set
}

// length returns the period in which count units are granted.
func (a amount) length() time.Duration {
	if a.per > 0 {
		return a.per
	}
	return a.unit
}

// A warmUpFields holds the words of a warm_up mapping.
type warmUpFields struct {
	period, outage time.Duration
	coldFactor     float64
}

// An activeItem is an item of active.
type activeItem struct {
	node   *yaml.Node
	period Period
	amount
}

// has reports whether d contains word.
func (d *rateLimit) has(word string) bool { return d.nodes[word] != nil }

// nodeOf returns the node of the first of words that d contains, or the node of d if it contains
// none.
func (d *rateLimit) nodeOf(words ...string) *yaml.Node {
	for _, w := range words {
		if n := d.nodes[w]; n != nil {
			return n
		}
	}
	return d.node
}

// rateLimit reads a rate_limit mapping.
func (r *reader) rateLimit(n *yaml.Node) *rateLimit {
	d := &rateLimit{node: n, nodes: map[string]*yaml.Node{}, cost: 1}
	known := r.amount(&d.amount)
	for word, read := range map[string]func(*yaml.Node){
		"algorithm":      r.algorithm(&d.algorithm),
		"unlimited":      r.boolean("unlimited", &d.unlimited),
		"name":           r.str("name", &d.name),
		"replaces":       r.replaces(d),
		"cost":           r.number("cost", 1, &d.cost),
		"granularity":    r.duration("granularity", &d.granularity),
		"queue":          r.number("queue", 1, &d.queue),
		"concurrency":    r.number("concurrency", 1, &d.concurrency),
		"max_age":        r.duration("max_age", &d.maxAge),
		"min_gap":        r.duration("min_gap", &d.minGap),
		"count_rejected": r.boolean("count_rejected", &d.countRejected),
		"delay":          r.number("delay", 1, &d.delay),
		"nodelay":        r.boolean("nodelay", &d.noDelay),
		"warm_up":        r.warmUp(&d.warmUp),
		"calendar":       r.oneOf("calendar", calendars, &d.calendar),
		"align":          r.oneOf("align", alignments, &d.align),
		"zone":           r.zone(&d.zone),
		"soft":           r.percent("soft", &d.soft),
		"borrow":         r.borrow(&d.borrow),
		"ban":            r.ban(&d.ban),
		"active":         r.activeItems(&d.active),
		"max_keys":       r.number("max_keys", 1, &d.maxKeys),
		"compact":        r.boolean("compact", &d.compact),
	} {
		known[word] = read
	}
	r.mapping(n, "rate_limit", recordNodes(known, d.nodes))
	return d
}

// recordNodes replaces the readers of known by readers that also store the node of each word in
// at. It returns known.
func recordNodes(known fieldReaders, at map[string]*yaml.Node) fieldReaders {
	for word, read := range known {
		known[word] = func(n *yaml.Node) {
			at[word] = n
			read(n)
		}
	}
	return known
}

// amount returns readers that store the words of an amount in a.
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

// oneOf returns a reader that stores the entry of table that a text names in to.
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

// algorithm returns a reader that stores the name of an algorithm in to.
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

// replaces returns a reader that appends the names of replaced limits to d.replaces.
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

// percent returns a reader that stores a percentage such as 10% or 10 in to.
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

// borrow returns a reader that stores the name of a Config.CanBorrow in to.
func (r *reader) borrow(to *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		text, ok := r.scalar(n, "borrow")
		if ok && r.config.CanBorrow[text] == nil {
			r.fail(n, "borrow is %q: the program has no Config.CanBorrow of that name", truncate(text))
		}
		*to = text
	}
}

// warmUp returns a reader that stores a warm_up mapping in to.
func (r *reader) warmUp(to *warmUpFields) func(*yaml.Node) {
	return func(n *yaml.Node) {
		r.mapping(n, "warm_up", fieldReaders{
			"period":      r.duration("period", &to.period),
			"cold_factor": r.float("cold_factor", &to.coldFactor),
			"outage":      r.duration("outage", &to.outage),
		})
	}
}

// float returns a reader that stores a positive number in to.
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

// ban returns a reader that stores a ban mapping in to.
func (r *reader) ban(to **keyed.BanConfig) func(*yaml.Node) {
	return func(n *yaml.Node) {
		var s keyed.BanConfig
		var after, keys int64
		faults := len(r.faults)
		r.mapping(n, "ban", fieldReaders{
			"name":         r.str("name", &s.Name),
			"rejections":   r.number("rejections", 1, &after),
			"within":       r.duration("within", &s.Within),
			"duration":     r.duration("duration", &s.Duration),
			"max_duration": r.duration("max_duration", &s.MaxDuration),
			"forget_after": r.duration("forget_after", &s.ForgetAfter),
			"max_keys":     r.number("max_keys", 1, &keys),
		})
		s.Rejections, s.MaxKeys = clampInt(after), clampInt(keys)
		if len(r.faults) > faults {
			return // Validate would report the same again
		}
		if err := s.Validate(); err != nil {
			r.fail(n, "%s", withoutPackage(err))
			return
		}
		*to = &s
	}
}

// activeItems returns a reader that appends one item of active, or a list of items, to to.
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
