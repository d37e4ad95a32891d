package db_test

import (
	"testing"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func mustSchema(t *testing.T, name string) db.Schema {
	t.Helper()
	s, err := db.NewSchema(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// open returns a pool on an empty database: the tests of this room need no
// schema, and no other room to work.
func open(t *testing.T, config db.Config) *db.DB {
	t.Helper()
	config.URL = dbtest.EmptyURL(t)
	d, err := db.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}
