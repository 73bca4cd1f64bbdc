package rules

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Error describes an error in a file and its position.
type Error struct {
	// Line and Column are the position of the error, both counted from 1. Zero means that the
	// error has no position.
	Line, Column int

	// Message describes what is wrong and how to correct it.
	Message string
}

// Error returns the position and the message.
func (e *Error) Error() string {
	if e.Line == 0 {
		return "rules: " + e.Message
	}
	return "rules: " + position{e.Line, e.Column}.String() + ": " + e.Message
}

const (
	maxErrors = 20 // reported errors per file
	maxDepth  = 16 // nesting of descriptors
)

// A reader reads the nodes of one file. It records errors and continues, so that one call reports
// all of them.
type reader struct {
	config  *Config
	faults  []*Error
	stopped bool // the rest of the file is skipped
}

// fieldReaders maps the words that a mapping accepts to functions that read their values.
type fieldReaders map[string]func(*yaml.Node)

// fail records an error at n.
func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	if len(r.faults) < maxErrors {
		r.faults = append(r.faults, &Error{n.Line, n.Column, fmt.Sprintf(format, args...)})
	}
}

// err returns all errors, in the order of the file.
func (r *reader) err() error {
	slices.SortStableFunc(r.faults, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	all := make([]error, len(r.faults))
	for i, f := range r.faults {
		all[i] = f
	}
	return errors.Join(all...)
}

// document returns the only document of text. It returns nil if text is empty or invalid.
func (r *reader) document(text []byte) *yaml.Node {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if !errors.Is(err, io.EOF) {
			r.faults = append(r.faults, syntaxError(err))
		}
		return nil
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		r.fail(&more, "a second document begins: put each domain into a file of its own")
	case !errors.Is(err, io.EOF):
		r.faults = append(r.faults, syntaxError(err))
	}
	if len(doc.Content) == 0 || !r.checkAliases(doc.Content[0]) {
		return nil
	}
	return doc.Content[0]
}

// syntaxError converts an error of the YAML library, which states the line only in its text.
func syntaxError(err error) *Error {
	what := strings.TrimPrefix(err.Error(), "yaml: ")
	rest, found := strings.CutPrefix(what, "line ")
	digits, after, cut := strings.Cut(rest, ": ")
	if line, err := strconv.Atoi(digits); found && cut && err == nil {
		return &Error{line, 1, "not YAML: " + after}
	}
	return &Error{1, 1, "not YAML: " + what}
}

// resolveAlias returns the node that n is an alias of, or n if it is not an alias.
func (r *reader) resolveAlias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// done reports whether the rest of the file can be skipped, because maxErrors errors have been
// recorded or r is stopped.
func (r *reader) done() bool { return r.stopped || len(r.faults) >= maxErrors }

// mapping calls the reader of each word of n with its value.
func (r *reader) mapping(n *yaml.Node, what string, known fieldReaders) {
	n = r.resolveAlias(n)
	if n.Kind != yaml.MappingNode {
		r.fail(n, "%s is %s: write words and their values, as in \"key: value\"", what, kindOf(n))
		return
	}
	seen := make(map[string]bool, min(len(n.Content)/2, len(known)))
	for i := 0; i+1 < len(n.Content) && !r.done(); i += 2 {
		word := r.resolveAlias(n.Content[i])
		read, ok := known[word.Value]
		switch {
		case word.Kind != yaml.ScalarNode:
			r.fail(word, "%s has %s for a word: write a plain word", what, kindOf(word))
		case seen[word.Value]:
			r.fail(word, "%s says %q twice: leave one", what, word.Value)
		case !ok:
			r.unknown(word, what, known)
		default:
			seen[word.Value] = true
			read(n.Content[i+1])
		}
	}
}

// unsupported maps words of other formats to the reason why they are not supported.
var unsupported = map[string]string{
	"quota_mode":  "a rejection that holds only if all such limits reject is not supported: leave it out, or use borrow",
	"metadata":    "metadata for a proxy is not supported: leave it out; name the limit, and Decision.Policy names the limit that rejected",
	"<<":          "merging is not supported: use an alias for the whole value, or repeat it",
	"rate_limits": "the routes of a proxy are not supported: say under values where the keys of descriptors come from",
	"actions":     "actions are not supported: say under values where the keys of descriptors come from",
}

// unknown records an error for a word that known does not contain.
func (r *reader) unknown(word *yaml.Node, what string, known fieldReaders) {
	if why := unsupported[word.Value]; why != "" {
		r.fail(word, "%q: %s", word.Value, why)
		return
	}
	var all []string
	for w := range known {
		all = append(all, w)
	}
	slices.Sort(all)
	r.fail(word, "%s has no word %q: it may have %s", what, truncate(word.Value), strings.Join(all, ", "))
}

// truncate shortens text of a file for an error message.
func truncate(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

// list calls read for each item of n.
func (r *reader) list(n *yaml.Node, what string, read func(*yaml.Node)) {
	n = r.resolveAlias(n)
	if n.Kind != yaml.SequenceNode {
		r.fail(n, "%s is %s: write a list, one item after each \"-\"", what, kindOf(n))
		return
	}
	for _, item := range n.Content {
		if r.done() {
			return
		}
		read(item)
	}
}

// listOrOne calls read for n, or for each item of n if n is a list.
func (r *reader) listOrOne(n *yaml.Node, read func(*yaml.Node)) {
	if at := r.resolveAlias(n); at.Kind == yaml.SequenceNode {
		r.list(at, "this", read)
		return
	}
	read(n)
}

// scalar returns the text of n, and reports whether n is a scalar.
func (r *reader) scalar(n *yaml.Node, what string) (string, bool) {
	at := r.resolveAlias(n)
	if at.Kind != yaml.ScalarNode {
		r.fail(at, "%s is %s: write one value", what, kindOf(at))
		return "", false
	}
	if at.Tag == "!!null" {
		return "", true
	}
	return at.Value, true
}

// str returns a reader that stores a text in to.
func (r *reader) str(what string, to *string) func(*yaml.Node) {
	return func(n *yaml.Node) { *to, _ = r.scalar(n, what) }
}

// boolean returns a reader that stores true or false in to.
func (r *reader) boolean(what string, to *bool) func(*yaml.Node) {
	return func(n *yaml.Node) {
		at := r.resolveAlias(n)
		if at.Kind != yaml.ScalarNode || at.Decode(to) != nil {
			r.fail(at, "%s is %q: write true or false", what, truncate(at.Value))
		}
	}
}

// number returns a reader that stores an integer of at least lowest in to.
func (r *reader) number(what string, lowest int64, to *int64) func(*yaml.Node) {
	return func(n *yaml.Node) {
		text, ok := r.scalar(n, what)
		if !ok {
			return
		}
		v, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
		if err != nil || v < lowest {
			r.fail(n, "%s is %q: write a whole number, %d or more", what, truncate(text), lowest)
			return
		}
		*to = v
	}
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return "empty"
		}
		return "the value " + strconv.Quote(truncate(n.Value))
	}
	return "something else"
}
