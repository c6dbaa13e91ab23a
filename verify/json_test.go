package main

import (
	"strings"
	"testing"
)

func TestOnlyCanonicalJSONIsRead(t *testing.T) {
	good := []string{
		`{}`, `[]`, `null`, `true`, `{"a":1,"b":[false,"x",null]}`, `-5`, `0.5`, `1e+21`, `1e-7`, `0.000001`, `333333333.3333333`,
		`9007199254740991`, `"\u0001\b\t\n\f\r\"\\/é€😀"`, "\"\u007f\"", `{"A":1,"a":2}`,
		"{\"\U0001F600\":1,\"\uFB33\":2}", // by UTF-16 units the first comes first, by code points the second
	}
	for _, text := range good {
		if _, err := parseCanonical([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	bad := []string{
		``, ` {}`, `{} `, `{"a":1,"a":1}`, `{"b":1,"a":1}`, `{"a": 1}`, `{"a":1,}`, `[1,]`, `[`, `{`, `{"a"`, `{"a":`, `"a`, `01`, `1.0`,
		`-0`, `-0.0`, `1e5`, `1E+21`, `1e21`, `1e400`, `NaN`, `Infinity`, `-`, `.5`, `+1`, `9007199254740992`, `100000000000000000000`,
		`"\u0041"`, `"\/"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\u001F"`, "\"\x01\"", "\"\xff\"", "\"\xed\xa0\x80\"", "\xef\xbb\xbf{}", `"\x"`, `"\u00"`,
		"{\"\uFB33\":2,\"\U0001F600\":1}", `tru`, `nul`, `{1:2}`, `{"a";1}`, `"\`, strings.Repeat("[", 100000),
	}
	for _, text := range bad {
		if _, err := parseCanonical([]byte(text)); err == nil {
			t.Errorf("%.40q is read", text)
		}
	}
}
