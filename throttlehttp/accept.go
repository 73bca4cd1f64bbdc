package throttlehttp

import "strings"

// A kind is a form of the same few words.
type kind uint8

const (
	asProblem kind = iota // what a server likes best comes first
	asPage
	asText
	kinds
)

func (k kind) contentType() string {
	switch k {
	case asPage:
		return "text/html; charset=utf-8"
	case asText:
		return "text/plain; charset=utf-8"
	}
	return "application/problem+json"
}

// is returns how exactly a media range of Accept names k: 3 by name, 2 by type, 1 by
// anything, 0 not at all. Who asks for JSON is served problem details, which are JSON.
func (k kind) is(media string) int {
	name, group := "text/plain", "text/*"
	switch k {
	case asProblem:
		name, group = "application/problem+json", "application/*"
	case asPage:
		name = "text/html"
	}
	switch {
	case strings.EqualFold(media, name), k == asProblem && strings.EqualFold(media, "application/json"):
		return 3
	case strings.EqualFold(media, group):
		return 2
	case media == "*/*":
		return 1
	}
	return 0
}

// maxAccept is how many bytes of Accept are read: more than any browser sends, less than
// would be worth an attack.
const maxAccept = 4 << 10

// preferred returns the kind that Accept likes best (RFC 9110, section 12.5.1). Between
// equals it is the one that Accept names more exactly, since "text/html, */*" is what
// browsers said that want pages. If none is acceptable it is the first all the same: an
// error says more than nothing.
func preferred(accept []string) kind {
	if len(accept) == 0 {
		return asProblem
	}
	var wanted [kinds]struct{ q, exact int }
	left := maxAccept
	for _, line := range accept {
		line = line[:min(len(line), left)]
		left -= len(line)
		for item := range strings.SplitSeq(line, ",") {
			media, params, _ := strings.Cut(item, ";")
			media = strings.TrimSpace(media)
			q := quality(params)
			for k := range kinds {
				if exact := k.is(media); exact > 0 && exact >= wanted[k].exact {
					if exact > wanted[k].exact || q > wanted[k].q {
						wanted[k].q, wanted[k].exact = q, exact
					}
				}
			}
		}
	}
	best := asProblem
	for k := range kinds {
		if a, b := wanted[k], wanted[best]; a.q > b.q || a.q == b.q && a.q > 0 && a.exact > b.exact {
			best = k
		}
	}
	return best
}

// quality returns the weight among the parameters of a media range, in thousandths.
// One that cannot be read is 0, since nobody knows what it should be.
func quality(params string) int {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(name, "q") {
			return thousandths(value)
		}
	}
	return 1000
}

// thousandths reads 0, 1, or a number between with up to three decimals.
func thousandths(s string) int {
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
