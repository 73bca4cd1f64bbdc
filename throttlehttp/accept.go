package throttlehttp

import "strings"

// A format is a content type in which a rejection can be written.
type format uint8

const (
	formatProblem format = iota // the server's preference decreases in this order
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
// a wildcard, 0 not at all. application/json matches problem details, which are JSON.
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

// maxAcceptBytes is the maximum number of bytes of Accept that are parsed: more than any
// browser sends, and few enough that parsing is cheap.
const maxAcceptBytes = 4 << 10

// negotiateFormat returns the format that Accept prefers (RFC 9110, section 12.5.1). Among
// formats with equal weights it returns the one that Accept names most exactly, because
// browsers that want pages send "text/html, */*". If no format is acceptable it returns the
// first: an error in another format is more useful than an empty response.
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

// qvalue returns the weight among the parameters of a media range, in thousandths. A
// malformed weight counts as 0.
func qvalue(params string) int {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(name, "q") {
			return parseQValue(value)
		}
	}
	return 1000
}

// parseQValue parses 0, 1, or a number in between with up to three decimals.
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
