package db_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/db"
)

func TestNewSchema(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{
		"siding": true, "a": true, "_a1": true, "order": true, strings.Repeat("a", 40): true,
		"": false, strings.Repeat("a", 41): false, "Siding": false, "1a": false, "a-b": false, `a"b`: false, "a.b": false, "a\n": false,
		"pg_siding": false, "information_schema": false, "siding_report": false,
	} {
		s, err := db.NewSchema(name)
		if (err == nil) != valid {
			t.Errorf("NewSchema(%q): error %v, want valid: %v", name, err, valid)
		}
		if valid && s.Name() != name {
			t.Errorf("NewSchema(%q).Name() = %q", name, s.Name())
		}
	}
}

func TestSchemaSQL(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, "other_siding")
	for name, test := range map[string]struct{ in, want string }{
		"table":                   {`SELECT * FROM siding.orders`, `SELECT * FROM "other_siding".orders`},
		"at the start":            {`siding.f()`, `"other_siding".f()`},
		"report view":             {`FROM siding_report.waiting`, `FROM "other_siding_report".waiting`},
		"several":                 {`siding.a,siding.b;(siding.c)`, `"other_siding".a,"other_siding".b;("other_siding".c)`},
		"three parts":             {`UPDATE siding.orders SET x = siding.orders.y`, `UPDATE "other_siding".orders SET x = "other_siding".orders.y`},
		"quoted object":           {`siding."order"`, `"other_siding"."order"`},
		"literal":                 {`'siding.orders'::regclass`, `'"other_siding".orders'::regclass`},
		"nextval":                 {`nextval('siding.position_seq')`, `nextval('"other_siding".position_seq')`},
		"format":                  {`format('siding.%I', x)`, `format('"other_siding".%I', x)`},
		"longer word":             {`my_siding.x, sidings.y`, `my_siding.x, sidings.y`},
		"other schema's table":    {`public.siding.x`, `public.siding.x`},
		"setting read":            {`current_setting('siding.clock_kind')`, `current_setting('siding.clock_kind')`},
		"setting read, spaced":    {"current_setting (\n 'siding.clock_kind', true)", "current_setting (\n 'siding.clock_kind', true)"},
		"setting set":             {`set_config('siding.x', '1', true)`, `set_config('siding.x', '1', true)`},
		"SET LOCAL":               {`SET LOCAL siding.x = 1; reset siding.x; SHOW siding.x`, `SET LOCAL siding.x = 1; reset siding.x; SHOW siding.x`},
		"OFFSET is no SET":        {`OFFSET siding.f()`, `OFFSET "other_siding".f()`},
		"setting and table":       {`current_setting('siding.a') FROM siding.a`, `current_setting('siding.a') FROM "other_siding".a`},
		"end of a sentence":       {`-- the name is siding. It`, `-- the name is siding. It`},
		"address":                 {`-- see https://siding.dev and me@siding.dev`, `-- see https://siding.dev and me@siding.dev`},
		"create schema":           {`CREATE SCHEMA IF NOT EXISTS siding;`, `CREATE SCHEMA IF NOT EXISTS "other_siding";`},
		"drop schema":             {`DROP SCHEMA IF EXISTS siding_report CASCADE`, `DROP SCHEMA IF EXISTS "other_siding_report" CASCADE`},
		"schema list, role":       {`GRANT USAGE ON SCHEMA siding, siding_report TO siding_reader, siding`, `GRANT USAGE ON SCHEMA "other_siding", "other_siding_report" TO siding_reader, siding`},
		"comment on schema":       {`COMMENT ON SCHEMA siding IS 'Siding'`, `COMMENT ON SCHEMA "other_siding" IS 'Siding'`},
		"schema prefix":           {`CREATE SCHEMA siding_old`, `CREATE SCHEMA siding_old`},
		"search path":             {`SET search_path = siding, pg_temp AS $$ SELECT siding.x $$`, `SET search_path = "other_siding", pg_temp AS $$ SELECT "other_siding".x $$`},
		"search path TO":          {`ALTER ROLE r SET search_path TO siding, siding_report;`, `ALTER ROLE r SET search_path TO "other_siding", "other_siding_report";`},
		"search path in a call":   {`set_config('search_path', 'siding', true)`, `set_config('search_path', '"other_siding"', true)`},
		"notify":                  {`pg_notify('siding', 'line-1')`, `pg_notify('other_siding', 'line-1')`},
		"other literals":          {`x = 'siding'`, `x = 'siding'`},
		"role":                    {`CREATE ROLE siding_reader; GRANT siding TO x`, `CREATE ROLE siding_reader; GRANT siding TO x`},
		"nothing to substitute":   {`SELECT 1`, `SELECT 1`},
		"the empty text":          {``, ``},
		"quoted schema stays":     {`"siding".orders`, `"siding".orders`},
		"comment on a set clause": {`ON CONFLICT DO UPDATE SET a = siding.f()`, `ON CONFLICT DO UPDATE SET a = "other_siding".f()`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, s.SQL(test.in)); diff != "" {
				t.Errorf("SQL (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.in, db.Schema{}.SQL(test.in)); diff != "" {
				t.Errorf("SQL of the standard schema changed the text (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, s.SQL(s.SQL(test.in))); diff != "" {
				t.Errorf("SQL twice (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSchemaNamesAreApart(t *testing.T) {
	t.Parallel()
	seen := map[int64]string{}
	for _, name := range []string{"siding", "siding2", "a", "ab"} {
		s := mustSchema(t, name)
		for _, purpose := range []string{"migrate", "b", "bmigrate"} {
			key := s.AdvisoryKey(purpose)
			if other, ok := seen[key]; ok {
				t.Errorf("%s %s has the advisory key of %s", name, purpose, other)
			}
			seen[key] = name + " " + purpose
			if key != s.AdvisoryKey(purpose) {
				t.Errorf("%s %s: the advisory key changes", name, purpose)
			}
		}
	}
	if got, want := (db.Schema{}).Channel(), mustSchema(t, "a").Channel(); got == want {
		t.Errorf("two schemas have the channel %q", got)
	}
	if (db.Schema{}).AdvisoryKey("x") != mustSchema(t, "siding").AdvisoryKey("x") {
		t.Error("the zero schema isn't the schema siding")
	}
}
