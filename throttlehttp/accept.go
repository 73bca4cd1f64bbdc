package throttlehttp

import "strings"

// A format is a form of the same few words.
type format uint8

const (
	formatProblem format = iota // what a server likes best comes first
	formatHTML
	formatText
	numFormats
)

func (k format) contentType() string {
	switch k {
	case formatHTML:
		return "text/html; charset=utf-8"
	case formatText:
		return "text/plain; charset=utf-8"
	}
	return "application/problem+json"
}

// specificity returns how exactly a media range of Accept names k: 3 by name, 2 by type, 1 by
// anything, 0 not at all. Who asks for JSON is served problem details, which are JSON.
func (k format) specificity(media string) int {
	name, group := "text/plain", "text/*"
	switch k {
	case formatProblem:
		name, group = "application/problem+json", "application/*"
	case formatHTML:
		name = "text/html"
	}
	switch {
	case strings.EqualFold(media, name), k == formatProblem && strings.EqualFold(media, "application/json"):
		return 3
	case strings.EqualFold(media, group):
		return 2
	case media == "*/*":
		return 1
	}
	return 0
}

// maxAcceptBytes is how many bytes of Accept are read: more than any browser sends, less than
// would be worth an attack.
const maxAcceptBytes = 4 << 10

// negotiateFormat returns the kind that Accept likes best (RFC 9110, section 12.5.1). Between
// equals it is the one that Accept names more exactly, since "text/html, */*" is what
// browsers said that want pages. If none is acceptable it is the first all the same: an
// error says more than nothing.
func negotiateFormat(accept []string) format {
	if len(accept) == 0 {
		return formatProblem
	}
	var wanted [numFormats]struct{ q, exact int }
	left := maxAcceptBytes
	for _, line := range accept {
		line = line[:min(len(line), left)]
		left -= len(line)
		for item := range strings.SplitSeq(line, ",") {
			media, params, _ := strings.Cut(item, ";")
			media = strings.TrimSpace(media)
			q := qvalue(params)
			for k := range numFormats {
				if exact := k.specificity(media); exact > 0 && exact >= wanted[k].exact {
					if exact > wanted[k].exact || q > wanted[k].q {
						wanted[k].q, wanted[k].exact = q, exact
					}
				}
			}
		}
	}
	best := formatProblem
	for k := range numFormats {
		if a, b := wanted[k], wanted[best]; a.q > b.q || a.q == b.q && a.q > 0 && a.exact > b.exact {
			best = k
		}
	}
	return best
}

// qvalue returns the weight among the parameters of a media range, in thousandths.
// One that cannot be read is 0, since nobody knows what it should be.
func qvalue(params string) int {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(name, "q") {
			return parseQValue(value)
		}
	}
	return 1000
}

// parseQValue reads 0, 1, or a number between with up to three decimals.
func parseQValue(s string) int {
	whole, decimals, _ := strings.Cut(s, ".")
	if whole != "0" && whole != "1" || len(decimals) > 3 {
		return 0
	}
	n := int(whole[0] - '0')
	for i := range 3 {
		n *= 10
		if i < len(decimals) {
			c := decimals[i]
			if c < '0' || c > '9' {
				return 0
			}
			n += int(c - '0')
		}
	}
	return min(n, 1000)
}
