package definition

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 128)
	cases := map[string]struct {
		template, args string
		want           string
		code           string // of the KeyError
		argument       string
	}{
		"one argument":            {"{customer}", `{"customer": "C1"}`, "C1", "", ""},
		"text around":             {"a {x}!", `{"x": "ü"}`, "a ü!", "", ""},
		"two arguments":           {"{customer}/{region}", `{"customer": "C1", "region": "eu"}`, "C1/eu", "", ""},
		"separator inside a part": {"{a}/{b}", `{"a": "x/y", "b": "z"}`, "x/y/z", "", ""},
		"the same key":            {"{a}/{b}", `{"a": "x", "b": "y/z"}`, "x/y/z", "", ""},
		"nested":                  {"{a.b.c-1}", `{"a": {"b": {"c-1": "v"}}}`, "v", "", ""},
		"boolean":                 {"{a}{b}", `{"a": true, "b": false}`, "truefalse", "", ""},
		"the last of two counts":  {"{a}", `{"a": "x", "a": "y"}`, "y", "", ""},
		"case matters":            {"{a}", `{"A": "x"}`, "", CodeKeyRequired, "a"},
		"escapes":                 {"{a}", `{"a": "x\u00fc\n\"{b}"}`, "xü\n\"{b}", "", ""},
		"blanks are kept":         {"{a}", `{"a": " "}`, " ", "", ""},
		"256 bytes":               {"{a}", `{"a": "` + long + `"}`, long, "", ""},
		"257 bytes":               {"x{a}", `{"a": "` + long + `"}`, "", CodeInvalidKey, ""},
		"missing":                 {"{a}/{b}", `{"a": "x"}`, "", CodeKeyRequired, "b"},
		"null":                    {"{a}", `{"a": null}`, "", CodeKeyRequired, "a"},
		"empty":                   {"x{a}", `{"a": ""}`, "", CodeKeyRequired, "a"},
		"object":                  {"{a}", `{"a": {"b": 1}}`, "", CodeKeyRequired, "a"},
		"list":                    {"{a}", `{"a": [1]}`, "", CodeKeyRequired, "a"},
		"lists have no members":   {"{a.0}", `{"a": ["x"]}`, "", CodeKeyRequired, "a.0"},
		"scalars have no members": {"{a.b}", `{"a": "x"}`, "", CodeKeyRequired, "a.b"},
		"null has no members":     {"{a.b}", `{"a": null}`, "", CodeKeyRequired, "a.b"},
		"no arguments":            {"{a}", "", "", CodeKeyRequired, "a"},
		"arguments null":          {"{a}", "null", "", CodeKeyRequired, "a"},
		"arguments a list":        {"{a}", `["a"]`, "", CodeKeyRequired, "a"},
		"arguments not JSON":      {"{a}", `{"a": 1`, "", CodeInvalidKey, ""},
		"zero character":          {"{a}", `{"a": "x\u0000"}`, "", CodeInvalidKey, ""},
		"not UTF-8":               {"{a}", "{\"a\": \"\xff\"}", "\ufffd", "", ""},
		"integer":                 {"{a}", `{"a": 12345678901234567890123}`, "12345678901234567890123", "", ""},
		"negative":                {"{a}", `{"a": -7}`, "-7", "", ""},
		"digits behind the point": {"{a}", `{"a": 1.50}`, "1.50", "", ""},
		"negative zero":           {"{a}", `{"a": -0}`, "0", "", ""},
		"negative zero point":     {"{a}", `{"a": -0.00}`, "0.00", "", ""},
		"exponent":                {"{a}", `{"a": 1e3}`, "1000", "", ""},
		"exponent with fraction":  {"{a}", `{"a": 1.50E1}`, "15.0", "", ""},
		"negative exponent":       {"{a}", `{"a": -1.0e-2}`, "-0.010", "", ""},
		"plus":                    {"{a}", `{"a": 12e+1}`, "120", "", ""},
		"zero with exponent":      {"{a}", `{"a": 0e5}`, "0", "", ""},
		"zero fraction exponent":  {"{a}", `{"a": 0.0e1}`, "0", "", ""},
		"zero, negative exponent": {"{a}", `{"a": 0e-3}`, "0.000", "", ""},
		"exponent eats fraction":  {"{a}", `{"a": 0.00125e3}`, "1.25", "", ""},
		"number too long":         {"{a}", `{"a": 1e256}`, "", CodeInvalidKey, ""},
		"number far too long":     {"{a}", `{"a": 1e999999999999}`, "", CodeInvalidKey, "a"},
		"number much too small":   {"{a}", `{"a": 1e-400}`, "", CodeInvalidKey, "a"},
		"longest number":          {"{a}", `{"a": 1e255}`, "1" + strings.Repeat("0", 255), "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Key(c.template, json.RawMessage(c.args))
			if got != c.want {
				t.Errorf("Key(%q, %s) = %q, want %q", c.template, c.args, got, c.want)
			}
			var failed *KeyError
			if errors.As(err, &failed) != (c.code != "") {
				t.Fatalf("error %v, want code %q", err, c.code)
			}
			if failed != nil && (failed.Code != c.code || failed.Argument != c.argument) {
				t.Errorf("error %+v, want code %q of argument %q", failed, c.code, c.argument)
			}
			if failed == nil && err != nil {
				t.Errorf("unexpected error: %v", err)
			}
		})
	}
}

func TestParseTemplate(t *testing.T) {
	t.Parallel()
	cases := map[string]bool{
		"{a}": true, "{a.b}": true, "{a_1-x.B}": true, "x{a}y{b}z": true, "{a}{a}": true,
		"": false, "x": false, "order": false, "{}": false, "{a": false, "a}": false, "{a}}": false, "{{a}}": false, "{a{b}": false,
		"{ a }": false, "{.a}": false, "{a.}": false, "{a..b}": false, "{ü}": false, "{a}\x00": false, "{a}\xff": false,
		"{a}" + strings.Repeat("x", 255): true, "{a}" + strings.Repeat("x", 256): false,
	}
	for template, good := range cases {
		if _, err := ParseTemplate(template); (err == nil) != good {
			t.Errorf("ParseTemplate(%q) = %v, want success %v", template, err, good)
		}
	}
}

func TestCheckKey(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"C1": "", " ": "", strings.Repeat("x", 256): "",
		"": CodeKeyRequired, strings.Repeat("x", 257): CodeInvalidKey, "a\x00": CodeInvalidKey, "a\xff": CodeInvalidKey,
	}
	for key, want := range cases {
		err := CheckKey(key)
		var failed *KeyError
		code := ""
		if errors.As(err, &failed) {
			code = failed.Code
		}
		if code != want || (err == nil) != (want == "") {
			t.Errorf("CheckKey(%q) = %v, want code %q", key, err, want)
		}
	}
}
