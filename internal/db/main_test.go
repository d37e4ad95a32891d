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
