package rules

import (
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/heed-go/heed/throttle"
)

// A draft is what a file says at the word rate_limit, before it is put together.
type draft struct {
	node *yaml.Node            // the whole of it
	at   map[string]*yaml.Node // where each word is

	amount
	algorithm    string
	unlimited    bool
	name         string
	replaces     []string
	cost         int64
	granularity  time.Duration
	queue        int64
	inFlight     int64
	maxAge       time.Duration
	minGap       time.Duration
	countRefused bool
	delay        int64
	noDelay      bool
	warmUp       warming
	calendar     throttle.Anchor
	anchor       throttle.Anchor
	zone         *time.Location
	soft         int64 // percent
	elastic      string
	penalty      *throttle.Sentence
	active       []activity
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

// A warming is what a file says at the word warm_up.
type warming struct {
	over, outage time.Duration
	cold         float64
}

// An activity is an item of the word active.
type activity struct {
	node   *yaml.Node
	period Period
	amount
}

// has reports whether the draft has the word.
func (d *draft) has(word string) bool { return d.at[word] != nil }

// where returns the node of the first of words that the draft has, or all of it.
func (d *draft) where(words ...string) *yaml.Node {
	for _, w := range words {
		if n := d.at[w]; n != nil {
			return n
		}
	}
	return d.node
}

// draft reads what is said at the word rate_limit.
func (r *reader) draft(n *yaml.Node) *draft {
	d := &draft{node: n, at: map[string]*yaml.Node{}, cost: 1}
	known := r.amount(&d.amount)
	for word, read := range map[string]func(*yaml.Node){
		"algorithm":     r.algorithm(&d.algorithm),
		"unlimited":     r.boolean("unlimited", &d.unlimited),
		"name":          r.str("name", &d.name),
		"replaces":      r.replaces(d),
		"cost":          r.number("cost", 1, &d.cost),
		"granularity":   r.duration("granularity", &d.granularity),
		"queue":         r.number("queue", 1, &d.queue),
		"in_flight":     r.number("in_flight", 1, &d.inFlight),
		"max_age":       r.duration("max_age", &d.maxAge),
		"min_gap":       r.duration("min_gap", &d.minGap),
		"count_refused": r.boolean("count_refused", &d.countRefused),
		"delay":         r.number("delay", 1, &d.delay),
		"nodelay":       r.boolean("nodelay", &d.noDelay),
		"warm_up":       r.warming(&d.warmUp),
		"calendar":      r.oneOf("calendar", calendars, &d.calendar),
		"anchor":        r.oneOf("anchor", anchors, &d.anchor),
		"zone":          r.zone(&d.zone),
		"soft":          r.percent("soft", &d.soft),
		"elastic":       r.spare(&d.elastic),
		"penalty":       r.penalty(&d.penalty),
		"active":        r.activities(&d.active),
		"max_keys":      r.number("max_keys", 1, &d.maxKeys),
		"compact":       r.boolean("compact", &d.compact),
	} {
		known[word] = read
	}
	r.mapping(n, "rate_limit", noting(known, d.at))
	return d
}

// noting returns known with readers that note where each word is.
func noting(known words, at map[string]*yaml.Node) words {
	for word, read := range known {
		known[word] = func(n *yaml.Node) {
			at[word] = n
			read(n)
		}
	}
	return known
}

// amount returns who reads the words of an amount into a.
func (r *reader) amount(a *amount) words {
	return words{
		"unit":              r.unit(&a.unit),
		"per":               r.duration("per", &a.per),
		"requests_per_unit": r.number("requests_per_unit", 0, &a.count),
		"burst":             r.number("burst", 1, &a.burst),
	}
}

var calendars = map[string]throttle.Anchor{
	"minute": throttle.EachMinute, "hour": throttle.EachHour, "day": throttle.EachDay, "month": throttle.EachMonth,
}

var anchors = map[string]throttle.Anchor{
	"epoch": throttle.AtEpoch, "first": throttle.AtFirst,
}

// oneOf returns who reads one of the words of a table into to.
func (r *reader) oneOf(what string, table map[string]throttle.Anchor, to *throttle.Anchor) func(*yaml.Node) {
	return func(n *yaml.Node) {
		text, ok := r.scalar(n, what)
		if !ok {
			return
		}
		if *to, ok = table[text]; !ok {
			r.fail(n, "%s is %q: write %s", what, clip(text), oneOfKeys(table))
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
			r.fail(n, "algorithm tick_queue lets nobody through at once, so that whoever cannot book ahead never gets through: write leaky_bucket")
		case algorithms[text] == nil:
			r.fail(n, "algorithm is %q: write %s", clip(text), oneOfKeys(algorithms))
		default:
			*to = text
		}
	}
}

// replaces returns who reads the names of other limits.
func (r *reader) replaces(d *draft) func(*yaml.Node) {
	return func(n *yaml.Node) {
		r.list(n, "replaces", func(n *yaml.Node) {
			var name string
			r.mapping(n, "replaces", words{"name": r.str("name", &name)})
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
			r.fail(n, "%s is %q: write how many percent more may come, such as 10%%", what, clip(text))
			return
		}
		*to = v
	}
}

// spare returns who reads the name of a Setting.Spare into to.
func (r *reader) spare(to *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		text, ok := r.scalar(n, "elastic")
		if ok && r.setting.Spare[text] == nil {
			r.fail(n, "elastic is %q: the program has no Setting.Spare of that name", clip(text))
		}
		*to = text
	}
}

// warming returns who reads what is said at the word warm_up.
func (r *reader) warming(to *warming) func(*yaml.Node) {
	return func(n *yaml.Node) {
		r.mapping(n, "warm_up", words{
			"over":   r.duration("over", &to.over),
			"cold":   r.float("cold", &to.cold),
			"outage": r.duration("outage", &to.outage),
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
			r.fail(n, "%s is %q: write a number above 0, such as 3", what, clip(text))
			return
		}
		*to = v
	}
}

// penalty returns who reads what is said at the word penalty.
func (r *reader) penalty(to **throttle.Sentence) func(*yaml.Node) {
	return func(n *yaml.Node) {
		var s throttle.Sentence
		var after, keys int64
		r.mapping(n, "penalty", words{
			"name":     r.str("name", &s.Name),
			"after":    r.number("after", 1, &after),
			"within":   r.duration("within", &s.Within),
			"for":      r.duration("for", &s.For),
			"max":      r.duration("max", &s.Max),
			"quiet":    r.duration("quiet", &s.Quiet),
			"max_keys": r.number("max_keys", 1, &keys),
		})
		s.After, s.MaxKeys = clampInt(after), clampInt(keys)
		if err := s.Validate(); err != nil {
			r.fail(n, "%s", reason(err))
			return
		}
		*to = &s
	}
}

// activities returns who reads what is said at the word active: one item, or several.
func (r *reader) activities(to *[]activity) func(*yaml.Node) {
	return func(n *yaml.Node) {
		r.listOrOne(n, func(n *yaml.Node) {
			a := activity{node: n, period: Period{To: day, Days: EveryDay}, amount: amount{count: -1}}
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
