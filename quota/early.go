package quota

import "time"

const (
	maxEarly     = 256 // accounts of which news are kept before anybody asks for them
	maxEarlyEach = 4   // of each
)

// early holds news of accounts that this process has not asked for yet, so that it
// knows of a shut gate when it begins to.
type early map[string][]earlyNews

type earlyNews struct {
	news news
	at   time.Time // when it was heard
}

func (e earlyNews) over(now time.Time) bool { return now.Sub(e.at) >= e.news.keep() }

// add keeps n if it is of use later. It replaces what was said of the same route.
func (e *early) add(account string, n news, now time.Time) {
	if n.keep() <= 0 {
		return
	}
	if *e == nil {
		*e = make(early)
	}
	kept := (*e)[account][:0]
	for _, k := range (*e)[account] {
		if k.news.Route != n.Route && !k.over(now) {
			kept = append(kept, k)
		}
	}
	if len(kept) == maxEarlyEach {
		kept = append(kept[:0], kept[1:]...)
	}
	if len(kept) == 0 && (*e)[account] == nil {
		e.room(now)
	}
	(*e)[account] = append(kept, earlyNews{n, now})
}

// room makes room for one more account: news that are over go first.
func (e *early) room(now time.Time) {
	if len(*e) < maxEarly {
		return
	}
	for account, kept := range *e {
		if kept[len(kept)-1].over(now) {
			delete(*e, account)
		}
	}
	for account := range *e {
		if len(*e) < maxEarly {
			return
		}
		delete(*e, account)
	}
}

// take returns what is kept of account, and forgets it.
func (e *early) take(account string) []earlyNews {
	kept := (*e)[account]
	delete(*e, account)
	return kept
}
