// Package monitor measures how often rate limits reject, and recommends changes.
//
// A [Registry] keeps a [Stats] for each limit of a file of package rules: how many claims the
// limit granted and rejected, which keys it rejected most often, and how much those keys asked
// for. [Recommend] derives a recommendation from these numbers. [Instrument] does the same for a
// limiter that is not in a file.
//
//	registry := &monitor.Registry{}
//	set, err := rules.Load("limits.yaml", rules.Config{DecisionHook: registry})
//	// ... later
//	for _, l := range set.All() {
//		fmt.Println(l.Policy(), registry.Recommend(l))
//	}
//
// An [Alert] calls a function when a key is rejected, or fails, too often.
package monitor
