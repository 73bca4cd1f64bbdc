package sfv

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"
)

// formatList returns a list of items in canonical form, for comparison with another parser.
func formatList(s string, lenient bool) (string, bool) {
	r := NewParser(s, lenient)
	var it Item
	var b strings.Builder
	for r.Next(&it) {
		fmt.Fprintf(&b, "%s", formatValue(it.Value))
		for _, p := range it.params[:it.n] {
			v, _ := it.Param(p.Key)
			fmt.Fprintf(&b, ";%s=%s", p.Key, formatValue(v))
		}
		b.WriteByte('\n')
	}
	return b.String(), !r.Malformed()
}

func formatValue(v Value) string {
	switch v.Kind {
	case Number:
		f, _ := strconv.ParseFloat(v.Text, 64)
		return fmt.Sprintf("number %.3f", f+0)
	case String:
		return fmt.Sprintf("string %q", v.String())
	}
	return fmt.Sprintf("%d %s", v.Kind, v.Text)
}

// referenceList returns the result of another parser in the same form. ok is false if the
// field is invalid, and known is false if it contains kinds of items that our parser does
// not support.
func referenceList(s string) (out string, ok, known bool) {
	list, err := httpsfv.UnmarshalList([]string{s})
	if err != nil {
		return "", false, true
	}
	var b strings.Builder
	for _, m := range list {
		it, isItem := m.(httpsfv.Item)
		if !isItem {
			return "", true, false
		}
		text, plain := referenceValue(it.Value)
		b.WriteString(text)
		names := it.Params.Names()
		if !plain || len(names) > 8 {
			return "", true, false
		}
		for _, name := range names {
			v, _ := it.Params.Get(name)
			text, plain := referenceValue(v)
			if !plain {
				return "", true, false
			}
			fmt.Fprintf(&b, ";%s=%s", name, text)
		}
		b.WriteByte('\n')
	}
	return b.String(), true, true
}

func referenceValue(v any) (string, bool) {
	switch v := v.(type) {
	case int64:
		return fmt.Sprintf("number %.3f", float64(v)), true
	case float64:
		return fmt.Sprintf("number %.3f", v+0), true
	case string:
		return fmt.Sprintf("string %q", v), true
	case httpsfv.Token:
		return fmt.Sprintf("%d %s", Token, string(v)), true
	case bool:
		if v {
			return fmt.Sprintf("%d 1", Bool), true
		}
		return fmt.Sprintf("%d 0", Bool), true
	case []byte:
		return fmt.Sprintf("%d %s", Bytes, base64.StdEncoding.EncodeToString(v)), true
	}
	return "", false
}

var fieldCases = []string{
	`"default";r=50;t=30`, `"burst";q=100;w=60,"daily";q=1000;w=86400`, `"a";r=1;pk=:dHJpYWwxMjEzMjM=:`,
	`100;w=10, 1000;w=3600`, `500; w=60`, `"quo\"te\\d";r=1`, `tok*en;a;b=?0;c=-1.5`, `"open`, `1,`, `;r=1`, ``, `  `,
	`"fixed window";"api";q=1000;w=300`, `1;r=1;r=2`, `(1 2);a`, `@123`, `1.2345`, `1234567890123456`, `"é"`, `a/b:c`, `1 , 2`, "1\t,\t2",
	`1;A=2`, `-0`, `1.`, `:a:`, `?2`, `1;a=`, `"x";r=0;t=0, "y"`,
	`0;a;a;a;a;a;a;a;a;b`, `0;b=1;a;a;a;a;a;a;a;a;b=2`,
}

func FuzzStructuredField(f *testing.F) {
	for _, s := range fieldCases {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		formatList(s, true)
		want, ok, known := referenceList(s)
		if !known || strings.Contains(s, ":") {
			return // kinds that our parser does not support, and byte sequences, which it does not decode
		}
		got, gotOK := formatList(s, false)
		if gotOK != ok || ok && got != want {
			t.Errorf("%q: got %q %v, the oracle says %q %v", s, got, gotOK, want, ok)
		}
	})
}

// TestParser_agreesOnEveryByte compares the parser with another one on fields that contain
// each byte in each place, and on numbers of all lengths.
func TestParser_agreesOnEveryByte(t *testing.T) {
	var fields []string
	for c := range 256 {
		for _, form := range []string{"%s", "a%s", "%sa", "1;%s", "1;a%s=2", "1;%sa=2", `"%s"`, `"\%s"`, "-%s", "?%s", "1%s1", "1.%s", "1.5%s", "1;a=%s", "a,%sb"} {
			fields = append(fields, fmt.Sprintf(form, string([]byte{byte(c)})))
		}
	}
	for n := range 18 {
		digits := strings.Repeat("9", n)
		fields = append(fields, digits, "-"+digits, digits+".1", digits+".999", "1."+digits)
	}
	for _, s := range fields {
		want, ok, known := referenceList(s)
		if !known {
			continue
		}
		got, gotOK := formatList(s, false)
		require.Equal(t, ok, gotOK, "%q", s)
		if ok {
			require.Equal(t, want, got, "%q", s)
		}
	}
}

func TestParser_readsBase64Only(t *testing.T) {
	for c := range 256 {
		if c == ':' {
			continue
		}
		text := string([]byte{byte(c)})
		it, p := Item{}, NewParser(":"+text+":", false)
		want := strings.Contains("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=", text)
		require.Equal(t, want, p.Next(&it), "%q", text)
		require.Equal(t, !want, p.Malformed(), "%q", text)
	}
	it, p := Item{}, NewParser("::", false)
	require.True(t, p.Next(&it), "an empty byte sequence")
	require.Equal(t, Value{Kind: Bytes}, it.Value)
}

// TestParser_acceptsDatesAndDisplayStrings checks the types that RateLimit fields do not use, but
// that comments of vendors may have.
func TestParser_acceptsDatesAndDisplayStrings(t *testing.T) {
	for _, value := range []string{
		"@0", "@-5", "@1.5", "@", "@x", `%""`, `%"a b"`, `%"%c3%bc"`, `%"%C3%BC"`, `%"%c3"`, `%"%ff"`, `%"%c"`, `%"%`, `%"%+5"`, `%"a`, `%a`, "%", "%\"\x7f\"", `%"~"`, "%\"\x1f\"", `%"%c3a%bc"`, `%"%C3"`, `%"%0g"`, `%"\"`,
	} {
		for _, form := range []string{"%s", "1;a=%s;b=2", "1;a=%s;a=2", "%s, 2"} {
			s := fmt.Sprintf(form, value)
			_, err := httpsfv.UnmarshalList([]string{s})
			_, ok := formatList(s, false)
			require.Equal(t, err == nil, ok, "%q: %v", s, err)
		}
	}
	p, it := NewParser(`%"%c3%bc";at=@-5;r=3`, false), Item{}
	require.True(t, p.Next(&it))
	require.Equal(t, Value{Display, "%c3%bc"}, it.Value)
	at, _ := it.Param("at")
	require.Equal(t, Value{Date, "-5"}, at)
}

// TestValue_hasEscapesInStringsOnly checks that String changes nothing but the escapes of a
// quoted string.
func TestValue_hasEscapesInStringsOnly(t *testing.T) {
	for field, want := range map[string]string{
		`"a\\b\""`: `a\b"`, `"a"`: "a", `""`: "", `%"a\b"`: `a\b`, `a/b`: "a/b", `?1`: "1", `@5`: "5", `:YQ==:`: "YQ==", `-1.5`: "-1.5",
	} {
		p, it := NewParser(field, false), Item{}
		require.True(t, p.Next(&it), field)
		require.Equal(t, want, it.Value.String(), field)
	}
}

func TestItem_keepsEightParameters(t *testing.T) {
	it, p := Item{}, NewParser("1;a=1;b=2;c=3;d=4;e=5;f=6;g=7;h=8;i=9;a=0, 2;h=0, 3", false)
	for _, want := range []map[string]string{
		{"a": "0", "g": "7", "h": "8", "i": ""}, // the last value of a key counts (RFC 9651), also after eight others
		{"a": "", "b": "", "h": "0"},
		{"a": "", "h": ""},
	} {
		require.True(t, p.Next(&it))
		for key, text := range want {
			v, ok := it.Param(key)
			require.Equal(t, text, v.Text, "%s;%s", it.Value.Text, key)
			require.Equal(t, text != "", ok, "%s;%s", it.Value.Text, key)
		}
	}
	require.False(t, p.Next(&it))
	require.False(t, p.Malformed())
}

func TestStructuredField_acceptsTwoNamesOnlyIfLenient(t *testing.T) {
	const s = `"fixed window";"api";q=1000;w=300`
	_, ok := formatList(s, false)
	require.False(t, ok)
	out, ok := formatList(s, true)
	require.True(t, ok)
	require.Equal(t, "string \"api\";q=number 1000.000;w=number 300.000\n", out)
}

func TestParser_readsBytesWithPadding(t *testing.T) {
	for _, s := range []string{":YQ==:", ":YWI=:", ":YWJj:", ":+/+/:"} {
		var it Item
		p := NewParser(s, false)
		require.True(t, p.Next(&it), s)
		require.Equal(t, Bytes, it.Value.Kind, s)
		require.False(t, p.Malformed(), s)
	}
	var it Item
	p := NewParser(":Y Q:", false)
	require.False(t, p.Next(&it) && !p.Malformed())
}
