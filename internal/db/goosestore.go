package db

import (
	"context"
	"fmt"

	"github.com/pressly/goose/v3/database"
)

// versionTable is goose's table inside the schema.
const versionTable = "goose_version"

// versionStore is goose's Postgres store with a table whose schema is quoted.
// Goose's own looks for such a table under the name with the quotes, and
// without them a schema named like a keyword is a syntax error.
type versionStore struct {
	database.Store
	schema Schema
}

func newVersionStore(schema Schema) (*versionStore, error) {
	store, err := database.NewStore(database.DialectPostgres, `"`+schema.Name()+`".`+versionTable)
	if err != nil {
		return nil, fmt.Errorf("migration version store: %w", err)
	}
	return &versionStore{Store: store, schema: schema}, nil
}

// TableExists makes it a database.StoreExtender.
func (s *versionStore) TableExists(ctx context.Context, db database.DBTxConn) (bool, error) {
	var exists bool
	err := db.QueryRowContext(ctx, tableExists, s.schema.Name(), versionTable).Scan(&exists)
	if err != nil {
		return false, fmt.Errorf("look for the table of migration versions: %w", err)
	}
	return exists, nil
}

const tableExists = `SELECT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = $1::text AND tablename = $2::text)`
