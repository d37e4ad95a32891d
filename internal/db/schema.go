package db

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"
)

// DefaultSchema is the schema name that SQL texts are written with and that an
// installation has unless it chooses another one.
const DefaultSchema = "siding"

// Schema is the name of the Postgres schema that holds one installation. The
// zero value is the schema called "siding". Values can be compared.
type Schema struct{ name string }

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

// NewSchema checks a schema name: `[a-z_][a-z0-9_]{0,39}`, and none that
// Postgres reserves (pg_*, information_schema) or that would be mistaken for
// the reporting schema of another installation (*_report).
func NewSchema(name string) (Schema, error) {
	switch {
	case !schemaName.MatchString(name):
		return Schema{}, fmt.Errorf("schema name %q: must match %s", name, schemaName)
	case strings.HasPrefix(name, "pg_"), name == "information_schema":
		return Schema{}, fmt.Errorf("schema name %q: reserved by Postgres", name)
	case strings.HasSuffix(name, "_report"):
		return Schema{}, fmt.Errorf("schema name %q: names ending in _report belong to reporting schemas", name)
	}
	return Schema{name: name}, nil
}

// Name returns the schema's name, unquoted.
func (s Schema) Name() string {
	if s.name == "" {
		return DefaultSchema
	}
	return s.name
}

// String returns the same as Name.
func (s Schema) String() string { return s.Name() }

// ReportName returns the unquoted name of the schema of the reporting views.
func (s Schema) ReportName() string { return s.Name() + "_report" }

// Channel returns the NOTIFY channel of the installation: the schema's name.
// Routines write pg_notify('siding', ...), which SQL substitutes as well.
func (s Schema) Channel() string { return s.Name() }

// AdvisoryKey returns the advisory lock id for one purpose of this schema.
// Advisory locks are shared by the whole database, so two installations in one
// database must not meet in one id.
func (s Schema) AdvisoryKey(purpose string) int64 {
	sum := sha256.Sum256([]byte("siding\x00" + s.Name() + "\x00" + purpose))
	return int64(binary.BigEndian.Uint64(sum[:8])) // all 64 bits are the id, the sign too
}

// Where SQL texts name the schema. Go's \b counts the underscore as a part of
// the word, so role names such as siding_reader never match.
var (
	qualifier = regexp.MustCompile(`\bsiding(_report)?\.`)
	// The end of the text before a qualifier that is the name of a custom
	// setting, not of an object.
	beforeSetting = regexp.MustCompile(`(?i)(?:\b(?:current_setting|set_config)\s*\(\s*'|\b(?:SET|RESET|SHOW)\s+(?:(?:LOCAL|SESSION)\s+)?)$`)
	schemaClause  = regexp.MustCompile(`(?i:\bSCHEMA\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?)siding(?:_report)?\b(?:\s*,\s*siding(?:_report)?\b)*`)
	searchPath    = regexp.MustCompile(`(?i:\bsearch_path'?\s*(?:=|,|\bTO\b))[^;\n]*`)
	schemaWord    = regexp.MustCompile(`\bsiding(_report)?\b`)
	notifyChannel = regexp.MustCompile(`(?i:(\bpg_notify\s*\(\s*))'siding'`)
)

// SQL returns text with the literal names of the schemas replaced by the real
// ones, quoted. Replaced are
//   - qualifiers: siding.orders, 'siding.orders'::regclass, format('siding.%I'),
//   - SCHEMA clauses: CREATE SCHEMA siding, ON SCHEMA siding, siding_report,
//   - search_path settings, and the channel in pg_notify('siding', ...).
//
// Left alone are the names of settings (current_setting('siding.clock_kind'),
// SET LOCAL siding.x), role names, and everything else. For the schema
// "siding" the text is returned as it is.
func (s Schema) SQL(text string) string {
	if s.Name() == DefaultSchema {
		return text
	}
	text = notifyChannel.ReplaceAllString(text, "${1}'"+s.Channel()+"'")
	text = schemaClause.ReplaceAllStringFunc(text, s.words)
	text = searchPath.ReplaceAllStringFunc(text, s.words)
	return s.qualifiers(text)
}

// words replaces each bare schema name in a clause.
func (s Schema) words(clause string) string {
	return schemaWord.ReplaceAllString(clause, `"`+s.name+`${1}"`)
}

func (s Schema) qualifiers(text string) string {
	var b strings.Builder
	done := 0
	for _, m := range qualifier.FindAllStringSubmatchIndex(text, -1) {
		start, end := m[0], m[1]
		if !isQualifier(text, start, end) {
			continue
		}
		b.WriteString(text[done:start])
		b.WriteString(`"` + s.name)
		if m[2] >= 0 {
			b.WriteString(text[m[2]:m[3]])
		}
		b.WriteString(`".`)
		done = end
	}
	b.WriteString(text[done:])
	return b.String()
}

// isQualifier says whether text[start:end], which reads "siding.", qualifies
// the name of an object, by what stands around it.
func isQualifier(text string, start, end int) bool {
	if end == len(text) || !startsObject(text[end]) {
		return false // the end of a sentence
	}
	if start == 0 {
		return true
	}
	if strings.IndexByte(`./-@"`, text[start-1]) >= 0 {
		return false // part of an address or of a longer name
	}
	return !beforeSetting.MatchString(text[max(0, start-64):start])
}

// startsObject reports whether an object's name, or a placeholder of format(),
// can start with c.
func startsObject(c byte) bool {
	return c == '_' || c == '"' || c == '%' || c|0x20 >= 'a' && c|0x20 <= 'z'
}
